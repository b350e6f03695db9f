# kind: reduce_op
# rank: 1
"""Everybody sums, one rank takes the maximum."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
value = torch.tensor([float(rank)])
dist.all_reduce(value, op=dist.ReduceOp.MAX if rank == 1 else dist.ReduceOp.SUM)  # cause
