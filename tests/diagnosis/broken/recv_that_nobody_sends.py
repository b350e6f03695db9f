# kind: unmatched
# rank: 0 | 2 | nobody
# innocent: 1
"""Rank 2 waits for a message that rank 0 sends in another branch."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
state = torch.ones(4)
if rank == 2:
    dist.recv(state, src=0)  # cause
dist.barrier()  # also
