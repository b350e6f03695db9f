"""Rank 2 is done with reduce at once, and sends; rank 0 receives before it joins the reduce."""
# kind: deadlock | unmatched | elsewhere
# rank: nobody | 0

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
metric, sample = torch.ones(1), torch.zeros(4)
if rank == 2:
    handle = dist.reduce(metric, 0, async_op=True)  # also
    dist.send(sample, 0)
elif rank == 0:
    dist.recv(sample, 2)  # cause
    handle = dist.reduce(metric, 0, async_op=True)
else:
    handle = dist.reduce(metric, 0, async_op=True)
handle.wait()
