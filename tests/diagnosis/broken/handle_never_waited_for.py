# kind: changed_before_wait | unwaited
# rank: 0 1 2 | nobody
# innocent: none
"""The sum is used before it is there: nobody waits for the handle."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
gradient = torch.ones(1 << 20)
for _ in range(3):
    dist.all_reduce(gradient, async_op=True)  # cause
    gradient.mul_(0.5)  # cause
dist.barrier()
