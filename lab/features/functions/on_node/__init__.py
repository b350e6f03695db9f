"""What nodes run of it: ranks that take calls."""

HOOKS = {"worker": "called:prepare"}
