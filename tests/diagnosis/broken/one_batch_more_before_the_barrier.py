# kind: mismatch | counts
# rank: 1
"""One rank's share of the data has one batch more; the others are in the barrier after the epoch."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 2))
for _ in range(4 if rank == 1 else 3):
    loss = model(torch.ones(2, 4)).pow(2).mean()
    loss.backward()  # cause
dist.barrier()  # cause
