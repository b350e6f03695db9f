# kind: deadlock
# rank: nobody
# timeout: 8s
"""A ring of blocking sends that ends when the first of them has waited long enough."""

from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=1))
rank, size = dist.get_rank(), dist.get_world_size()
state = torch.ones(4)
dist.send(state, dst=(rank + 1) % size)  # cause
dist.recv(state, src=(rank - 1) % size)
