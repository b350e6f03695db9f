# nodes: 4
# kind: deadlock
# rank: 3
"""A grid of two rows and two columns: in one round a rank reduces twice in its row."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
rows = [dist.new_group(row) for row in ([0, 1], [2, 3])]
columns = [dist.new_group(column) for column in ([0, 2], [1, 3])]
row, column = rows[rank // 2], columns[rank % 2]
value = torch.ones(4)
for step in range(6):
    dist.all_reduce(value, group=row)
    dist.all_reduce(value, group=row if rank == 3 and step == 3 else column)  # cause
