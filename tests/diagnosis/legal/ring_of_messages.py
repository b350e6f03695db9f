"""A ring of messages that rank 0 begins."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
mine, theirs = torch.full((4,), float(rank)), torch.empty(4)
for _ in range(3):
    if rank % 2:
        dist.recv(theirs, src=rank - 1)
        dist.send(mine, dst=(rank + 1) % size)
    elif rank == 0:
        dist.send(mine, dst=1)
        dist.recv(theirs, src=size - 1)
    else:
        dist.recv(theirs, src=rank - 1)
        dist.send(mine, dst=(rank + 1) % size)
