# kind: unmatched
# rank: 0 | 1 | nobody
# innocent: 2
"""A pipeline's first stage sends three micro-batches, the second takes four."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
state = torch.ones(4)
if rank == 0:
    for _ in range(3):
        dist.send(state, dst=1)
elif rank == 1:
    for _ in range(4):
        dist.recv(state, src=0)  # cause
dist.barrier()  # also
