# kind: never_entered | mismatch | unmatched
# rank: 2
"""A pipeline's last stage returns from the step before it hands the gradient back."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
state = torch.ones(4)
if rank > 0:
    dist.recv(state, src=rank - 1)
if rank < size - 1:
    dist.send(state, dst=rank + 1)
    dist.recv(state, src=rank + 1)
else:
    time.sleep(3600)  # cause
if rank > 0:
    dist.send(state, dst=rank - 1)
