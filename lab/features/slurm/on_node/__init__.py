"""Code that machines of Slurm run in addition to the agents of nodes."""
