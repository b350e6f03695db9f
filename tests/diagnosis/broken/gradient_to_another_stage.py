# kind: deadlock
# rank: 2
"""In the last round the last stage sends its gradient to the first stage, not to the one before it."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(3):
    tensor = torch.zeros(100_000)
    if rank == 0:
        dist.send(tensor, 1)
        dist.recv(tensor, 1)
    elif rank == 1:
        dist.recv(tensor, 0)
        dist.send(tensor, 2)
        dist.recv(tensor, 2)
        dist.send(tensor, 0)
    else:
        dist.recv(tensor, 1)
        dist.send(tensor, 1 if step < 2 else 0)  # cause
dist.barrier()
