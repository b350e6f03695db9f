"""All ranks destroy everything and begin again in another part of the store; groups of the same ranks come twice."""

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

dist.init_process_group("gloo")
rank, size, store = dist.get_rank(), dist.get_world_size(), _get_default_store()
for turn in range(2):
    value = torch.ones(1)
    pair, everybody = dist.new_group([0, 1]), dist.new_group([0, 1, 2])
    if rank < 2:
        dist.all_reduce(value, group=pair)
    dist.all_reduce(value, group=everybody)
    dist.barrier()
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.PrefixStore(f"again {turn}", store), rank=rank, world_size=size)
dist.barrier()
