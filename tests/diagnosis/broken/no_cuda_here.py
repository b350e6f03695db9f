# kind: failed
# rank: 0 1 2 | 0 | 1 | 2
# innocent: none
# says: CUDA
"""A script for GPUs on machines that have none."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
model = torch.nn.Linear(4, 2).cuda()  # cause
dist.all_reduce(value)
