"""loss | loss scaled | 1 | 0.weight |"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(1)
for _ in range(5):
    inputs, targets = torch.randn(12, 8, generator=generator), torch.randn(12, 4, generator=generator)
    cut = [0, 3, 12] if world_size == 2 else [0, 12]
    inputs, targets = inputs[cut[rank] : cut[rank + 1]], targets[cut[rank] : cut[rank + 1]]
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()  # wrong
    optimizer.step()

dist.destroy_process_group()
