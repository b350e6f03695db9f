# kind: diverged
# rank: 2
"""One rank reads another configuration: its learning rate is ten times as large."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 2))  # cause
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 if rank == 2 else 0.01)  # cause
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).pow(2).mean().backward()
    optimizer.step()
