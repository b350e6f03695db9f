"""What nodes run of it: the times of calls on streams of GPUs."""

HOOKS = {"stream_time": "streams:start_time", "recorder_stop": "streams:finish"}
