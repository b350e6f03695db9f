"""Node code for GPUs: the times of calls on streams."""

HOOKS = {
    "refuse_compiled": "streams:refuse_compiled",
    "stream_time": "streams:start_time",
    "recorder_stop": "streams:finish_events",
}
