# kind: unmatched
# rank: 1 | 2 | nobody
# innocent: 0
"""The handle of an isend is waited for, and nobody receives."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
state = torch.ones(4)
if rank == 1:
    handle = dist.isend(state, dst=2, tag=3)  # cause
    handle.wait()
dist.barrier()  # also
