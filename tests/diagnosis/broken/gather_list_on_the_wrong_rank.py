# kind: failed
# rank: 0 1 | 0 | 1
# innocent: 2
# says: gather_list
"""The list for the results stands on another rank than the one that gathers."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
results = [torch.empty(2) for _ in range(3)] if rank == 1 else None
dist.gather(torch.ones(2), results, dst=0)  # cause
