"""One rank calls broadcast where the others call all_reduce: they wait for different things."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
tensor = torch.full((4,), float(rank))

if rank == 1:
    dist.broadcast(tensor, src=0)  # the mistake
else:
    dist.all_reduce(tensor)
dist.barrier()
