"""Every rank says that there are more ranks than there are: all wait for one that will never come."""

import os

import torch.distributed as dist

rank = int(os.environ["RANK"])
world_size = int(os.environ["WORLD_SIZE"]) + 1  # the mistake

dist.init_process_group("gloo", rank=rank, world_size=world_size)
print("never reached")
