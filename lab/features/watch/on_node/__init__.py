"""Node code of step-by-step runs: holds a script before each of its calls."""

HOOKS = {"worker": "gate:close_gate", "hold_call": "gate:hold_call"}
