"""Nodes of the lab that leave the processor to everybody else."""
