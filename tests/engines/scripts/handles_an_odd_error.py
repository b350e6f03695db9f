"""Makes a call while it handles an error that has no text, then raises one on rank 1."""

import torch
import torch.distributed as dist


class Odd(Exception):
    def __str__(self):
        raise RuntimeError("no text")


dist.init_process_group("gloo")
try:
    raise Odd
except Odd:
    dist.all_reduce(torch.ones(1))
if dist.get_rank() == 1:
    raise Odd
dist.barrier()
