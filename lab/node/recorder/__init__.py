"""Records every call of torch.distributed that a worker makes, and the phases of its training; see docs/trace.md."""
