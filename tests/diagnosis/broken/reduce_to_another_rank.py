# kind: root
# rank: 1
"""The last rank collects the loss, but one rank counts from one."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
collector = size - 2 if rank == 1 else size - 1
for step in range(3):
    loss = torch.tensor([float(step + rank)])
    dist.reduce(loss, dst=collector)  # cause
dist.barrier()
