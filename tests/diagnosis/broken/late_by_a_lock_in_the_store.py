# kind: never_entered | elsewhere
# rank: 2 | 1 2
# innocent: 0
"""Ranks take turns by a key of the store; who has the turn forgets to hand it on."""

import time

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

dist.init_process_group("gloo")
rank, store = dist.get_rank(), _get_default_store()
turn = store.add("turn", 0)
while store.add("turn", 0) < rank:  # cause
    time.sleep(0.02)  # cause
if rank < 1:
    store.add("turn", 1)
dist.all_reduce(torch.ones(1))
