# kind: unmatched
# rank: nobody
"""A message is sent in one group and received in another."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
pair = dist.new_group([0, 1])
if rank == 0:
    dist.send(torch.ones(1), dst=1, group=pair)  # cause
elif rank == 1:
    dist.recv(torch.ones(1), src=0)  # also
dist.barrier()
