"""One rank asks for larger buckets: DDP takes those of rank 0 everywhere."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
layers = [torch.nn.Linear(400, 400, bias=False) for _ in range(3)]
model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=25 if rank == 1 else 0.5)
for _ in range(3):
    model(torch.ones(2, 400) * rank).sum().backward()
