"""Ranks with different numbers of batches, under Join."""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 4))
with Join([model]):
    for _ in range(3 + rank):
        model(torch.ones(2, 4)).sum().backward()
