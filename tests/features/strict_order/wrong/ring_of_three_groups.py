"""Each pair of three ranks has a group; everybody starts with the pair to its right."""
# kind: deadlock

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
pairs = [dist.new_group([0, 1]), dist.new_group([1, 2]), dist.new_group([0, 2])]
mine = [pairs[rank], pairs[(rank - 1) % 3]]
sums = [torch.ones(3), torch.ones(3)]
handles = []
for group, part in zip(mine, sums, strict=True):
    handles.append(dist.all_reduce(part, group=group, async_op=True))  # cause
for handle in handles:
    handle.wait()
