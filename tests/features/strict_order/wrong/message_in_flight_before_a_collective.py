"""Rank 0 starts to send and joins the all_reduce; rank 1 joins the all_reduce and then receives."""
# nodes: 2
# kind: deadlock | unmatched | elsewhere

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
total, report = torch.ones(1), torch.zeros(2)
if rank == 0:
    sent = dist.isend(report, 1)  # cause
    dist.all_reduce(total)
    sent.wait()
else:
    dist.all_reduce(total)  # also
    dist.recv(report, 0)
