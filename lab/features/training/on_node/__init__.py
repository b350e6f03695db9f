"""What nodes run of it: recording DDP modules, their buckets, and the norms of what optimizers change."""

HOOKS = {"recorder": "ddp:record_training", "recorder_stop": "ddp:finish_training"}
