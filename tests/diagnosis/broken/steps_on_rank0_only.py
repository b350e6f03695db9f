# kind: diverged | counts
# rank: 0
"""The step of the optimizer slipped into the block that writes the log on rank 0."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 2))  # cause
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4) * (rank + step)).pow(2).mean()  # cause
    loss.backward()
    if rank == 0:
        optimizer.step()  # cause
        print("loss", loss.item())
