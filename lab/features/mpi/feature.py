"""MPI: recording process groups that are written in Python, as those of torch-mpi."""

from lab.feature import Feature

FEATURE = Feature(name="mpi", on_node="lab.features.mpi.on_node")
