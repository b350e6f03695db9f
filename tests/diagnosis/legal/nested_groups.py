# nodes: 4
"""A group inside a group inside the world; each is used by its members only."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
three, two = dist.new_group([0, 1, 2]), dist.new_group([0, 1])
value = torch.ones(1)
for step in range(4):
    if rank < 2:
        dist.all_reduce(value, group=two)
    if rank < 3 and step % 2:
        dist.broadcast(value, src=0, group=three)
    dist.all_reduce(value)
