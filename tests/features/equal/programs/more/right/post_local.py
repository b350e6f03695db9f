"""Post local."""

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
        self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x, scale=1.0):
        return self.head(self.body(x).relu()) * scale


def main():
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        x, y = torch.randn(12, 8, generator=generator), torch.randn(12, 4, generator=generator)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x=x[rank::world_size], scale=0.5), y[rank::world_size]).backward()
        optimizer.step()


main()

dist.destroy_process_group()
