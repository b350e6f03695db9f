"""Code of ranks that take calls."""

HOOKS = {"worker": "call_channels:prepare_calls"}
