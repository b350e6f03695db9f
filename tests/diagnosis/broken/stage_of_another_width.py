# kind: shape
# rank: nobody | 0 | 1
# innocent: 2
"""The first stage sends five activations a sample, the second one expects four."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    dist.send(torch.ones(2, 5), dst=1)  # cause
elif rank == 1:
    dist.recv(torch.empty(2, 4), src=0)  # cause
dist.barrier()
