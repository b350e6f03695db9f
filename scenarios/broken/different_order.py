"""Two collectives, in another order on one rank."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
loss, count = torch.ones(1), torch.ones(3, dtype=torch.int64)

if rank == 2:
    dist.all_reduce(count)  # the mistake: the others reduce the loss first
    dist.broadcast(loss, src=0)
else:
    dist.broadcast(loss, src=0)
    dist.all_reduce(count)
dist.barrier()
