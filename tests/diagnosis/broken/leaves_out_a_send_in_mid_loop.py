# kind: unmatched
# rank: 1
"""The middle stage drops a micro-batch that it does not like, and goes on; the last stage counts on all of them."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(3):
    for batch in range(4):
        activation = torch.ones(64)
        if rank == 0:
            dist.send(activation, 1)
        elif rank == 1:
            dist.recv(activation, 0)
            if step == 1 and batch == 2:
                continue
            dist.send(activation, 2)  # cause
        else:
            dist.recv(activation, 1)
    dist.barrier()
