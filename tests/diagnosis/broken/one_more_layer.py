# kind: failed | shape | mismatch
# rank: 0
"""One rank's model has one layer more."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
layers = [torch.nn.Linear(4, 4) for _ in range(3 if rank == 0 else 2)]
model = DistributedDataParallel(torch.nn.Sequential(*layers))  # cause
model(torch.ones(2, 4)).sum().backward()
