# kind: nonfinite
# rank: 1
"""One rank divides by the number of its positive labels, which is zero: everybody's gradients are lost."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(3):
    positive = torch.tensor(0.0 if rank == 1 and step == 1 else 4.0)
    gradient = torch.full((4,), 2.0) * positive / positive
    dist.all_reduce(gradient)  # cause
