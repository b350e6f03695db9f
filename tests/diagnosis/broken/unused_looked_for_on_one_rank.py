# kind: mismatch | shape | dtype | slipped | counts | went_alone
# rank: 0
"""Only rank 0 looks for unused parameters: it reduces which ones were used, too."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(4, 2), find_unused_parameters=rank == 0)
for _ in range(4):
    loss = model(torch.ones(2, 4)).pow(2).mean()  # cause
    loss.backward()  # cause
