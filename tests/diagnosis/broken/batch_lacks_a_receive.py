# kind: unmatched
# rank: 0 | 1 | nobody
# innocent: 2
"""A ring of batched messages; one rank leaves out its receive."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
mine, theirs = torch.ones(4), torch.empty(4)
batch = [dist.P2POp(dist.isend, mine, (rank + 1) % size)]
if rank != 1:
    batch.append(dist.P2POp(dist.irecv, theirs, (rank - 1) % size))
for request in dist.batch_isend_irecv(batch):  # cause
    request.wait()  # cause
dist.barrier()
