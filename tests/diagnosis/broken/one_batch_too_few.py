# kind: left_early | counts
# rank: 1
"""One rank's loader drops its last batch."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 4))
for _ in range(3 if rank == 1 else 4):
    model(torch.ones(2, 4)).sum().backward()  # cause
