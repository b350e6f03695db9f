"""Rank 2 leaves after the first part; the other two go on in a world of two."""

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

dist.init_process_group("gloo")
rank, store = dist.get_rank(), _get_default_store()
dist.all_reduce(torch.ones(1))
dist.barrier()
dist.destroy_process_group()
if rank < 2:
    dist.init_process_group("gloo", store=dist.PrefixStore("two", store), rank=rank, world_size=2)
    dist.all_reduce(torch.ones(1))
    dist.barrier()
