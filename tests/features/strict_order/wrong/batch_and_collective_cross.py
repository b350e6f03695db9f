"""Rank 0 starts a batch and then a reduction, rank 1 the other way round."""
# nodes: 2
# kind: deadlock | unmatched | elsewhere

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
mine, yours, total = torch.zeros(2), torch.empty(2), torch.ones(3)


def exchange():
    batch = [dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, yours, 1 - rank)]
    return dist.batch_isend_irecv(batch)  # cause


def reduce():
    return [dist.all_reduce(total, async_op=True)]  # also


handles = exchange() + reduce() if rank == 0 else reduce() + exchange()
for handle in handles:
    handle.wait()
