"""GPU: a self-test of what GPUs need, up to an all_reduce over nccl."""
