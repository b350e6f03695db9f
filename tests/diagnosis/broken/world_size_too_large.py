# kind: rendezvous
# rank: nobody
# says: 4
"""The script was written for four ranks, and three are there."""

import os

import torch.distributed as dist

dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=4)  # cause
dist.barrier()
