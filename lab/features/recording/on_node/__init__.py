"""Node code of recording: errors that processes send to others."""

HOOKS = {"recorder": "errors:watch_errors"}
