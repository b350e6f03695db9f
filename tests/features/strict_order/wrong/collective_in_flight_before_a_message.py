"""Rank 0 starts an all_reduce and sends; rank 1 receives before it starts the all_reduce."""
# nodes: 2
# kind: deadlock | unmatched | elsewhere

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
gradient, batch = torch.ones(8), torch.zeros(2)
if rank == 0:
    handle = dist.all_reduce(gradient, async_op=True)  # cause
    dist.send(batch, 1)
else:
    dist.recv(batch, 0)  # also
    handle = dist.all_reduce(gradient, async_op=True)
handle.wait()
