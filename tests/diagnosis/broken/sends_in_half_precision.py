# kind: dtype
# rank: 0 | nobody
# innocent: 1 2
"""The first stage sends what autocast gave it, and the second one makes room for float32."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
activation = torch.ones(8, 16)
if rank == 0:
    dist.send(activation.bfloat16(), 1)  # cause
if rank == 1:
    dist.recv(activation, 0)
if rank in (1, 2):
    (dist.send if rank == 1 else dist.recv)(activation, 3 - rank)
dist.barrier()
