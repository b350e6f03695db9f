"""Flags of all ranks, by BOR."""
# kind: rejected
# rank: 0 | 1 | 2 | 0 1 | 0 2 | 1 2 | 0 1 2
# says: ReduceOp.BOR
# innocent: none

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
flags = torch.tensor([1 << dist.get_rank()])
dist.all_reduce(flags, op=dist.ReduceOp.BOR)  # cause
