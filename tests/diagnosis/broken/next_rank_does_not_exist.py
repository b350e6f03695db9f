# kind: failed
# rank: 2
# says: no rank 3
"""A pipeline's last stage sends to the stage after it."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
state = torch.ones(4)
if rank > 0:
    dist.recv(state, src=rank - 1)
dist.send(state, dst=rank + 1)  # cause
dist.barrier()
