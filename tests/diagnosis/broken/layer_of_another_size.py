# kind: failed | shape
# rank: 1
"""One rank reads another configuration: its layer is wider."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Linear(4, 6 if rank == 1 else 4)
model = DistributedDataParallel(model)  # cause
model(torch.ones(2, 4)).sum().backward()
