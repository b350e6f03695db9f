"""GPU: when calls end that streams of GPUs carry out, and what `lab doctor` says of GPUs."""
