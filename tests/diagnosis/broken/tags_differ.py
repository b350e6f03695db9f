# kind: unmatched
# rank: 0 | 1 | nobody
# innocent: 2
# says: tag 7
# says: tag 8
"""Sender and receiver count their messages differently."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
state = torch.ones(4)
if rank == 0:
    dist.send(state, dst=1, tag=7)  # cause
elif rank == 1:
    dist.recv(state, src=0, tag=8)  # also
dist.barrier()
