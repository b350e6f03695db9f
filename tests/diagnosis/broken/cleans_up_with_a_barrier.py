# kind: failed | mismatch
# rank: 1
"""A rank that meets a bad file cleans up, and the cleaning begins with a barrier."""

import torch
import torch.distributed as dist


def clean_up():
    dist.barrier()  # cause


dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(4):
    try:
        if rank == 1 and step == 2:
            raise OSError("bad file")  # cause
        dist.all_reduce(torch.ones(2))
    except OSError:
        clean_up()
