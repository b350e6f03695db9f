"""GPU: when calls end that streams of GPUs carry out."""
