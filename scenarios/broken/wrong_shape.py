"""One rank brings a tensor of another shape to all_reduce."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
tensor = torch.ones(4 if rank != 1 else 5)  # the mistake

dist.all_reduce(tensor)
print(f"rank {rank}: {tensor}")
dist.barrier()
