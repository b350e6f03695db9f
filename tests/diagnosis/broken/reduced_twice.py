# kind: reduced_twice | same_values
# rank: nobody | 0 1 2
# innocent: none
"""DDP has averaged the gradients, and the script reduces them again."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 4))
for step in range(4):
    model.zero_grad()
    model(torch.full((2, 4), float(rank + step))).pow(2).sum().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # cause
