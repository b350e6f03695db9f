# kind: mismatch | slipped | counts | went_alone | shape | dtype
# rank: 0
"""Rank 0 draws a picture of the model's output: its buffers are sent round for that, by rank 0 alone."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
model = DistributedDataParallel(net)
for step in range(4):
    model(torch.randn(4, 4)).pow(2).sum().backward()  # cause
    if rank == 0 and step == 1:
        model(torch.randn(4, 4))  # cause
