"""One rank calls a collective once more than the others: it waits for a meeting that nobody else will come to."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
tensor = torch.ones(4)

for _ in range(3):
    dist.all_reduce(tensor)
if rank == 2:
    dist.all_reduce(tensor)  # the mistake: a fourth one
print(f"rank {rank} is done")
