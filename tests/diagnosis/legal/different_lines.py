"""Rank 0 calls the same collectives as the others from lines of its own."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
weights = torch.full((4,), float(rank))
if rank == 0:
    dist.broadcast(weights, src=0)
    dist.all_reduce(weights)
    dist.reduce(weights, dst=0)
else:
    dist.broadcast(weights, src=0)
    dist.all_reduce(weights)
    dist.reduce(weights, dst=0)
dist.barrier()
