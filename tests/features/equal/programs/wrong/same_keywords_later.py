"""samples | same samples | 3 |  |"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, *, inputs, targets):
        return nn.functional.mse_loss(self.layer(inputs), targets)


dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(1)
for step in range(1, 5):
    inputs, targets = torch.randn(12, 8, generator=generator), torch.randn(12, 4, generator=generator)
    part = rank if step < 3 else 0
    inputs, targets = inputs.chunk(world_size)[part], targets.chunk(world_size)[part]
    optimizer.zero_grad()
    model(inputs=inputs, targets=targets).backward()  # wrong
    optimizer.step()

dist.destroy_process_group()
