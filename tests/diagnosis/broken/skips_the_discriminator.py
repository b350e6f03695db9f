# kind: counts | mismatch | shape
# rank: 1
"""Two models: one rank leaves out a step of the discriminator."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
generator = DistributedDataParallel(torch.nn.Linear(3, 5))
discriminator = DistributedDataParallel(torch.nn.Linear(5, 1))
for step in range(6):
    if rank != 1 or step != 3:
        discriminator(torch.randn(2, 5)).sum().backward()
    generator(torch.randn(2, 3)).sum().backward()  # cause
