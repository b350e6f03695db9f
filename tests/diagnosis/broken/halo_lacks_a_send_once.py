# kind: slipped
# rank: 2
"""In one round a rank does not give its border to the next one, and goes on."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
after, before = (rank + 1) % size, (rank - 1) % size
field = torch.full((10,), float(rank))
for step in range(4):
    left, right = torch.empty(1), torch.empty(1)
    both = [dist.P2POp(dist.irecv, left, before), dist.P2POp(dist.irecv, right, after, tag=1)]
    both.append(dist.P2POp(dist.isend, field[:1].clone(), before, tag=1))
    if not (rank == 2 and step == 2):
        both.append(dist.P2POp(dist.isend, field[-1:].clone(), after))
    for request in dist.batch_isend_irecv(both):  # cause
        request.wait()
    field = field + left + right
dist.barrier()
