"""One rank does something else for very long, and never comes to the collective."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
tensor = torch.ones(4)

if rank == 1:
    time.sleep(3600)  # a file that is not there yet, a lock, a debugger, an endless loop ...
dist.all_reduce(tensor)
