# kind: same_values
# rank: nobody | 0 1 2
# innocent: none
"""Without a DistributedSampler all ranks train on the same batches."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 4))
data = torch.randn(16, 4)
for batch in data.split(4):
    model.zero_grad()
    model(batch).pow(2).sum().backward()  # cause
