"""The exchange that NCCL documents: one batch."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for _ in range(3):
    mine, left = torch.full((4,), float(rank)), torch.empty(4)
    batch = [dist.P2POp(dist.irecv, left, (rank - 1) % size), dist.P2POp(dist.isend, mine, (rank + 1) % size)]
    for handle in dist.batch_isend_irecv(batch):
        handle.wait()
    assert left[0] == (rank - 1) % size
dist.barrier()
