"""Debuggers of workers."""

HOOKS = {"worker": "debugger:prepare_debugger"}
