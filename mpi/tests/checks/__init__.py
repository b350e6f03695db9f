"""What ranks check, started by MPI: functions `check_...` are called on every rank, in the group of all."""
