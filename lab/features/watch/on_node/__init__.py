"""What nodes run of it: holding a script before each of its calls."""

HOOKS = {"worker": "gate:close_gate", "hold_call": "gate:hold_call"}
