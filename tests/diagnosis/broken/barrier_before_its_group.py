# kind: deadlock
# rank: 1
"""In one round a rank comes to the barrier of all before it has reduced in its group, as it did before."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
first, second = dist.new_group([0, 1]), dist.new_group([1, 2])
for step in range(5):
    value = torch.ones(2)
    early = rank == 1 and step == 3
    if rank > 0:
        dist.all_reduce(value, group=second)
    if early:
        dist.barrier()  # cause
    if rank < 2:
        dist.all_reduce(value, group=first)  # also
    if not early:
        dist.barrier()
