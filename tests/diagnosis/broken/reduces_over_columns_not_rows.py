# kind: elsewhere | deadlock | never_entered | groups
# rank: 3 | nobody
# nodes: 4
# innocent: 0
# never: made \[
"""In a grid of two by two one rank takes the group of its column for that of its row."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
mine = columns[1] if rank == 3 else rows[rank // 2]
dist.all_reduce(torch.ones(4), group=mine)  # cause
dist.barrier()  # cause
