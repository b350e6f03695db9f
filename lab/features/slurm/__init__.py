"""Slurm: clusters that are allocations, with a node on each machine of one."""

from lab.feature import Feature

_ENGINES = {"slurm": "lab.features.slurm.engine:SlurmEngine"}
FEATURE = Feature(name="slurm", engines=_ENGINES, on_node="lab.features.slurm.on_node")
