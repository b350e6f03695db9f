# kind: never_entered | mismatch | failed | slipped | counts
# rank: 1
"""One rank's batch has nothing for the second head, so its gradients never come."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear(4, 4)
        self.other = torch.nn.Linear(4, 4)

    def forward(self, x, both):
        return self.one(x) + self.other(x) if both else self.one(x)


dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(Net())
for step in range(3):
    loss = model(torch.ones(2, 4), both=rank != 1 or step < 1).sum()  # cause
    loss.backward()  # cause
