# kind: counts | slipped | mismatch | left_early
# rank: 1
"""One rank has a loss that is not finite, and goes on with the next batch before the backward pass."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(5):
    data = torch.full((2, 4), float("inf") if rank == 1 and step == 2 else 1.0)
    loss = model(data).mean()  # cause
    if not torch.isfinite(loss):
        continue  # cause
    optimizer.zero_grad()
    loss.backward()  # cause
    optimizer.step()
