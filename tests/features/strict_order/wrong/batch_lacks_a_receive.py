"""A batch in which rank 1 sends and does not receive."""
# nodes: 2
# kind: unmatched | left_early | never_entered | deadlock
# rank: 1 | nobody
# innocent: none

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
mine, yours = torch.zeros(2), torch.empty(2)
if rank == 0:
    batch = [dist.P2POp(dist.isend, mine, 1), dist.P2POp(dist.irecv, yours, 1)]
else:
    batch = [dist.P2POp(dist.isend, mine, 0)]
handles = dist.batch_isend_irecv(batch)  # cause
handles[-1].wait()
