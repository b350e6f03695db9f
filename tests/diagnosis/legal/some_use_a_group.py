# nodes: 4
"""All make two groups, but only the members of one ever use theirs."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
used, spare = dist.new_group([1, 3]), dist.new_group([0, 2])
value = torch.ones(1)
if rank in (1, 3):
    for _ in range(5):
        dist.all_reduce(value, group=used)
dist.barrier()
