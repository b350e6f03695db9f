"""MPI: recording process groups that are written in Python, as those of torch-mpi."""
