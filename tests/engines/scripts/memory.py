"""One rank, given as an argument, takes more memory than its node has, while the others wait for it."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
if dist.get_rank() == int(sys.argv[1]):
    held = []
    while True:
        held.append(torch.ones(2 * 1024 * 1024))  # 8 MiB
dist.all_reduce(torch.ones(1))
