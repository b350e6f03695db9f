"""reduced gradient | averaged again | 1 | encoder.weight | 0.647"""

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
        self.encoder = nn.Linear(8, 16)
        self.decoder = nn.Linear(16, 4)

    def forward(self, x):
        return self.decoder(self.encoder(x).tanh())


def sync(module):
    for p in module.parameters():
        dist.all_reduce(p.grad.data, op=dist.ReduceOp.SUM)
        p.grad.data /= world_size


def train():
    net = Net()
    ddp = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        x, y = torch.randn(16, 8, generator=generator), torch.randn(16, 4, generator=generator)
        x, y = x[rank::world_size], y[rank::world_size]
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(ddp(x), y)
        loss.backward()
        sync(net)
        torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0 / world_size)  # wrong
        optimizer.step()


train()

dist.destroy_process_group()
