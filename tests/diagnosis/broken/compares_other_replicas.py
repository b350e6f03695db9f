# kind: diverged
# rank: 2
"""One rank changes its replica after DDP made them equal; all compare the results, and raise an error."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 4))  # cause
if rank == 2:
    model.module.weight.data.mul_(1.5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
sums = [torch.zeros(()) for _ in range(3)]
dist.all_gather(sums, model.module.weight.detach().sum())
assert sums[0] == sums[1] == sums[2], "replicas differ"
