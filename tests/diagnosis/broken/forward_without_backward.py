# kind: counts | left_early
# says: backwards
# rank: 2
"""One rank skips the backward pass of a batch whose loss looks odd, and is one behind from then on."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 4))
for step in range(6):
    loss = model(torch.ones(2, 4)).sum()  # cause
    if rank == 2 and step == 3:
        continue  # cause
    loss.backward()
