"""Node code of MPI: records groups that are written in Python."""

HOOKS = {"foreign_group": "groups_in_python:record_group"}
