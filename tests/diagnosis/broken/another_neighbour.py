# kind: unmatched
# rank: 2
"""Everybody gives to the next rank and takes from the one before; one takes from the next, too."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
mine, theirs = torch.full((4,), float(rank)), torch.zeros(4)
after, before = (rank + 1) % size, (rank - 1) % size
exchange = [
    dist.P2POp(dist.isend, mine, after),
    dist.P2POp(dist.irecv, theirs, after if rank == 2 else before),
]
for work in dist.batch_isend_irecv(exchange):  # cause
    work.wait()
