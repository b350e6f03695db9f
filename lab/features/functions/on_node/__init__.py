"""What nodes run of it: ranks that take calls."""

HOOKS = {"worker": "call_channels:prepare_calls"}
