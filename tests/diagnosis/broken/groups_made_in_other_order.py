# kind: groups
# rank: 1
"""Rank 1 makes the same groups in another order."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
wanted = [[0, 1], [0, 1, 2]]
if rank == 1:
    wanted.reverse()
groups = [dist.new_group(ranks) for ranks in wanted]  # cause
value = torch.ones(1)
for group in groups:
    if group != dist.GroupMember.NON_GROUP_MEMBER:
        dist.all_reduce(value, group=group)
