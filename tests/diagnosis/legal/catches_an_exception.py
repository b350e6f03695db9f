"""An exception is caught on one rank, and the collective is entered all the same."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(4):
    loss = torch.tensor([float(rank + step)])
    try:
        if rank == 1 and step == 2:
            raise OSError("bad batch")
    except OSError:
        loss.zero_()
    dist.all_reduce(loss)
