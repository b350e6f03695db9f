"""A work queue: rank 0 takes results from whoever has one, workers do different amounts."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
result = torch.zeros(2)
if rank == 0:
    for _ in range(5):
        source = dist.recv(result)
        dist.send(result + 1, dst=source)
else:
    for number in range(2 if rank == 1 else 3):
        dist.send(torch.tensor([float(rank), float(number)]), dst=0)
        dist.recv(result, src=0)
