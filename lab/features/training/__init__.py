"""Training: whether ranks train the same, and what DistributedDataParallel sends."""
