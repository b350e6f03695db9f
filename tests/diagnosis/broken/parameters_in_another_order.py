# kind: parameter_order
# rank: 2
"""One rank registers its layers in another order; all have the same shapes, so nothing is said."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self, names):
        super().__init__()
        for name in names:
            self.add_module(name, torch.nn.Linear(4, 4))

    def forward(self, x):
        return self.key(x) * self.query(x)


dist.init_process_group("gloo")
rank = dist.get_rank()
names = ["query", "key"] if rank == 2 else ["key", "query"]
model = DistributedDataParallel(Net(names))  # cause
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
