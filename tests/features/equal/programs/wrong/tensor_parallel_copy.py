"""reduced gradient | not reduced | 1 | 0.weight |"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(_, gradient):
        return gradient


class Block(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        first, last = nn.Linear(features, hidden), nn.Linear(hidden, features)
        part = slice(rank * hidden // world_size, (rank + 1) * hidden // world_size)
        self.first = nn.Parameter(first.weight.detach()[part].clone())
        self.first_bias = nn.Parameter(first.bias.detach()[part].clone())
        self.last = nn.Parameter(last.weight.detach()[:, part].clone())
        self.last_bias = nn.Parameter(last.bias.detach().clone())

    def forward(self, x):
        hidden = nn.functional.linear(x, self.first, self.first_bias).relu()  # wrong
        return Sum.apply(hidden @ self.last.T) + self.last_bias


model = nn.Sequential(nn.Linear(8, 8), Block(8, 12), nn.Linear(8, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(1)
for _ in range(5):
    inputs, targets = torch.randn(12, 8, generator=generator), torch.randn(12, 4, generator=generator)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()

dist.destroy_process_group()
