"""A DDP model, an open file and a compressed one, all global and all left to the end of the process."""

import gzip
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 2))
for _ in range(3):
    model(torch.randn(8, 4)).sum().backward()
folder = os.environ["LAB_SHARED"]
plain = open(f"{folder}/left-open.txt.{dist.get_rank()}", "w")
plain.write("flushed")
packed = gzip.open(f"{folder}/left-open.gz.{dist.get_rank()}", "wt")
packed.write("flushed")
dist.barrier()
dist.destroy_process_group()
