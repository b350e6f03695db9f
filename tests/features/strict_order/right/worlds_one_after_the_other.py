"""Two worlds, each in its own part of the store, with messages and a broadcast."""

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

dist.init_process_group("gloo")
rank, size, store = dist.get_rank(), dist.get_world_size(), _get_default_store()
for turn in range(2):
    value = torch.full((2,), float(rank + turn))
    if rank == 0:
        dist.send(value, 1)
    elif rank == 1:
        dist.recv(value, 0)
    dist.broadcast(value, src=2)
    dist.barrier()
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.PrefixStore(f"again {turn}", store), rank=rank, world_size=size)
dist.barrier()
