# kind: unmatched
# rank: 1
"""Micro-batches go from stage to stage; the middle one does not pass the last of them on."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
activation = torch.ones(4)
for batch in range(4):
    if rank > 0:
        dist.recv(activation, rank - 1)
    if rank < size - 1 and not (rank == 1 and batch == 3):
        dist.send(activation, rank + 1)  # cause
dist.barrier()
