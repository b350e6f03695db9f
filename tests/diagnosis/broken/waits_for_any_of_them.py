# kind: never_entered | own_code
# rank: 2
"""Rank 0 receives from whoever sends; one rank stops in its own code, and another one is done already."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
result = torch.zeros(1)
if rank == 0:
    for _ in range(4):
        dist.recv(result)
else:
    for number in range(2):
        while rank == 2 and number == 1:
            time.sleep(0.01)  # cause
        dist.send(torch.ones(1), 0)
dist.barrier()
