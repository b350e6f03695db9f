# kind: elsewhere
# rank: 3
# nodes: 4
"""All reduce within pairs, then meet; one rank comes to the barrier without its reduction."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
value = torch.ones(1)
if rank != 3:
    dist.all_reduce(value, group=pairs[rank // 2])
dist.barrier()  # cause
