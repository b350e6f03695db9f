"""Neighbours exchange their borders; the first and the last have one neighbour only."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
field = torch.full((6,), float(rank))
for _ in range(3):
    batch = []
    if rank > 0:
        batch += [dist.P2POp(dist.isend, field[1:2].clone(), rank - 1), dist.P2POp(dist.irecv, field[:1], rank - 1)]
    if rank < size - 1:
        batch += [dist.P2POp(dist.isend, field[-2:-1].clone(), rank + 1), dist.P2POp(dist.irecv, field[-1:], rank + 1)]
    for request in dist.batch_isend_irecv(batch):
        request.wait()
