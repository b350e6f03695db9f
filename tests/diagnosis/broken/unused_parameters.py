# kind: failed
# rank: 0 1 2 | 0 | 1 | 2 | nobody
# innocent: none
# says: parameter
"""A layer of the model takes no part in the loss, on any rank."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.spare = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.body(x)


dist.init_process_group("gloo")
model = DistributedDataParallel(Net())
for _ in range(3):
    loss = model(torch.ones(2, 4)).sum()  # cause
    loss.backward()
