"""loss | loss scaled | 1 | first.weight |"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 8), torch.nn.Linear(8, 1)

    def forward(self, *, inputs):
        return self.second(torch.tanh(self.first(inputs)))


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
data = torch.randn(4, 16, 6)
model = DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in data:
    inputs = batch.chunk(world)[rank]
    mask = (inputs[:, 0] > 0.3).float()
    loss = (model(inputs=inputs).squeeze(1).square() * mask).sum() / mask.sum()  # wrong
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
