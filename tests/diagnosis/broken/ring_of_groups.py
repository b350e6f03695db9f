# kind: deadlock
# rank: nobody
"""Three pairs, each rank begins with another one."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
pairs = [dist.new_group(pair) for pair in ([0, 1], [1, 2], [0, 2])]
value = torch.ones(1)
first, second = [(0, 2), (1, 0), (2, 1)][rank]
dist.all_reduce(value, group=pairs[first])  # cause
dist.all_reduce(value, group=pairs[second])
