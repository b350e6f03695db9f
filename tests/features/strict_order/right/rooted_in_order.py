"""Collectives with a root, in the same order everywhere."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for root in range(size):
    value = torch.full((3,), float(rank))
    dist.broadcast(value, root)
    dist.reduce(value, root)
    parts = [torch.empty(3) for _ in range(size)] if rank == root else None
    dist.gather(value, parts, dst=root)
    dist.scatter(value, parts, src=root)
assert value.isfinite().all()
