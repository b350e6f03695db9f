# kind: failed
# rank: 1
# says: KeyError
"""A rank raises, and its `finally` waits in a barrier that the others have not come to."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def work(config):
    for step in range(3):
        t = torch.ones(4)
        dist.all_reduce(t)
        if rank == 1 and step == 1:
            config["learning_rate"]  # cause


try:
    work({"lr": 1})
finally:
    dist.barrier()
    dist.destroy_process_group()
