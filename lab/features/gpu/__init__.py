"""GPU: what `lab doctor` says of GPUs."""
