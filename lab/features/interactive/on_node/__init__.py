"""What nodes run of it: debuggers of workers."""

HOOKS = {"worker": "debugger:prepare_debugger"}
