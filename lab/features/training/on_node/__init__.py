"""Node code of training: records DDP modules, their buckets, and norms of parameters after optimizer steps."""

HOOKS = {"recorder": "ddp:record_training", "recorder_stop": "ddp:finish_training"}
