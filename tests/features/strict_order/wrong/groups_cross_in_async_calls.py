"""Two groups of the same ranks: rank 1 starts its two collectives in the other order."""
# nodes: 2
# kind: deadlock

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
losses, norms = dist.new_group([0, 1]), dist.new_group([0, 1])
loss, norm = torch.ones(4), torch.ones(4)
if rank == 0:
    handles = [dist.all_reduce(loss, group=losses, async_op=True)]  # cause
    handles += [dist.all_reduce(norm, group=norms, async_op=True)]
else:
    handles = [dist.all_reduce(norm, group=norms, async_op=True)]  # also
    handles += [dist.all_reduce(loss, group=losses, async_op=True)]
for handle in handles:
    handle.wait()
