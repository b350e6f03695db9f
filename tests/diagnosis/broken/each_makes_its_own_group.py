# kind: groups
# rank: nobody
# nodes: 4
# innocent: none
"""Every rank makes only the group that it is in itself."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
first = 2 * (rank // 2)
mine = dist.new_group([first, first + 1])  # cause
value = torch.ones(1)
dist.all_reduce(value, group=mine)
dist.barrier()
