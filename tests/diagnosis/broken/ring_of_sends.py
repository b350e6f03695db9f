# kind: deadlock
# rank: nobody
"""Everybody sends to the next rank before it receives."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
state = torch.ones(4)
dist.send(state, dst=(rank + 1) % size)  # cause
dist.recv(state, src=(rank - 1) % size)
