"""Objects in a script that chooses its GPU if there is one."""

import os

import torch
import torch.distributed as dist

if torch.cuda.is_available():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("gloo")
everything = [None] * dist.get_world_size()
dist.all_gather_object(everything, {"rank": dist.get_rank()})
assert [one["rank"] for one in everything] == [0, 1, 2]
