"""Launchers: torchrun and mpirun in the place of the lab's own agents."""
