"""Slurm: clusters that are allocations, with a node on each machine of one."""

from lab.feature import Feature

FEATURE = Feature(
    name="slurm",
    engines={"slurm": "lab.features.slurm.engine:SlurmEngine"},
    on_node="lab.features.slurm.on_node",
)
