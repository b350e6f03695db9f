"""Lstm time first."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(8, 12), nn.Linear(12, 4)

    def forward(self, x):
        return self.out(self.lstm(x)[0])


model = DistributedDataParallel(Net())
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(1)
for _ in range(4):
    inputs, targets = torch.randn(5, 12, 8, generator=generator), torch.randn(5, 12, 4, generator=generator)
    inputs, targets = inputs.chunk(world_size, 1)[rank], targets.chunk(world_size, 1)[rank]
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()

dist.destroy_process_group()
