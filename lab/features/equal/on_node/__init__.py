"""Node code of equal: fingerprints of training steps."""

HOOKS = {"recorder": "steps:record_steps", "recorder_stop": "steps:finish_steps"}
