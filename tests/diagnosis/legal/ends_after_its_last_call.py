"""Rank 0 has nothing to do after the last reduction; the others compute and talk to each other."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
pair = dist.new_group([1, 2])
value = torch.ones(1)
dist.all_reduce(value)
if rank > 0:
    time.sleep(0.5)
    dist.all_reduce(value, group=pair)
