"""What machines of Slurm run beside the agents of nodes."""
