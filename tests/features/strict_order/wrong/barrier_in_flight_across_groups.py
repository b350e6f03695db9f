"""Rank 2 waits for its pair before it joins the barrier that the others have started."""
# kind: deadlock | elsewhere
# rank: nobody | 2

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
pair = dist.new_group([1, 2])
value = torch.ones(2)
if rank == 2:
    dist.all_reduce(value, group=pair)  # cause
    dist.barrier()
else:
    handle = dist.barrier(async_op=True)  # also
    if rank == 1:
        dist.all_reduce(value, group=pair)
    handle.wait()
