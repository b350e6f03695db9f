"""Collectives of two groups start in one order on every rank, and are waited for in any."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
other = dist.new_group([0, 1, 2])
one, two = torch.ones(1000), torch.ones(10)
for _ in range(3):
    handles = [dist.all_reduce(one, async_op=True), dist.all_reduce(two, group=other, async_op=True)]
    for handle in handles if rank else handles[::-1]:
        handle.wait()
assert one[0] == 27
