"""Gradients accumulate over many exchanges, each on the heels of the last; then a message is waited for."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(torch.nn.Linear(8, 8))
for turn in range(100):
    model(torch.full((2, 8), float(rank + turn))).sum().backward()
passed_on = torch.zeros(4)
sent = dist.isend(torch.full((4,), float(rank)), (rank + 1) % size)
dist.irecv(passed_on, (rank - 1) % size).wait()
sent.wait()
assert passed_on[0] == (rank - 1) % size
