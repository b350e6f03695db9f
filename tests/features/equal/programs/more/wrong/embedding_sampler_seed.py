"""samples | other samples | 1 |  |"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
data = TensorDataset(torch.randint(0, 50, (48, 6)), torch.randn(48, 4))
sampler = RandomSampler(data, generator=torch.Generator().manual_seed(rank))
loader = DataLoader(data, batch_size=12 // world_size, sampler=sampler)  # wrong
model = DistributedDataParallel(nn.Sequential(nn.Embedding(50, 8), nn.Flatten(), nn.Linear(48, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, targets in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()

dist.destroy_process_group()
