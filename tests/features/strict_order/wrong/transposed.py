"""A transposed weight, which is not contiguous, is reduced."""
# kind: rejected
# rank: 0 | 1 | 2 | 0 1 | 0 2 | 1 2 | 0 1 2
# says: contiguous
# innocent: none

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
weight = torch.arange(6.0).reshape(2, 3).t()
dist.all_reduce(weight)  # cause
