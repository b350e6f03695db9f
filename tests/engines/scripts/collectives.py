"""scatter, broadcast and all_reduce; every rank notes what it holds afterwards, and who it is."""

import os

import torch
import torch.distributed as dist

from lab import note

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
note("who", {name: os.environ[name] for name in ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")})
note("group_world_size", os.environ["GROUP_WORLD_SIZE"])

scattered = torch.empty(1)
chunks = [torch.tensor([10.0 * i]) for i in range(world_size)]
dist.scatter(scattered, chunks if rank == 0 else None, src=0)
note("scattered", scattered)

value = torch.full((3,), float(rank))
dist.broadcast(value, src=world_size - 1)
note("broadcast", value)

total = torch.tensor([rank + 1])
dist.all_reduce(total)
note("total", total)

dist.barrier()
dist.destroy_process_group()
