# kind: slipped | counts | left_early
# rank: 1
"""A rank catches the exception of a bad batch and goes on with the next: it reduces once less."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(5):
    try:
        if rank == 1 and step == 2:
            raise OSError("bad batch")
        loss = torch.tensor([float(step)])
    except OSError:
        continue  # cause
    dist.all_reduce(loss)  # cause
dist.all_reduce(torch.ones(1))  # cause
