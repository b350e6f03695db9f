"""One rank brings a tensor of another dtype to all_reduce: as many elements, but twice the bytes."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
tensor = torch.ones(4, dtype=torch.float64 if rank == 1 else torch.float32)  # the mistake

dist.all_reduce(tensor)
print(f"rank {rank}: {tensor}")
dist.barrier()
