"""The Slurm engine: a cluster is an allocation, a node is a job step on one of its machines."""
