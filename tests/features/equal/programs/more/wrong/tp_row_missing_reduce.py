"""module output | module output | 1 | Parallel |"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


class Parallel(nn.Module):
    def __init__(self):
        super().__init__()
        first, last = nn.Linear(8, 12), nn.Linear(12, 4)
        part = slice(rank * 12 // world_size, (rank + 1) * 12 // world_size)
        self.first = nn.Linear(8, 12 // world_size)
        self.last = nn.Linear(12 // world_size, 4)
        with torch.no_grad():
            self.first.weight.copy_(first.weight[part])
            self.first.bias.copy_(first.bias[part])
            self.last.weight.copy_(last.weight[:, part])
            self.last.bias.zero_()

    def forward(self, x):
        return self.last(self.first(x).relu())  # wrong


model = Parallel()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(1)
for _ in range(5):
    inputs, targets = torch.randn(12, 8, generator=generator), torch.randn(12, 4, generator=generator)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()

dist.destroy_process_group()
