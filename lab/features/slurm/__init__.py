"""Slurm: clusters that are allocations, with a node on each machine of one."""

from lab.feature import Feature

FEATURE = Feature(name="slurm", engines={"slurm": ".engine:SlurmEngine"}, on_node=".on_node")
