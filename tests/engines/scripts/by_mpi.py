"""Says who it is by MPI and by torchrun's variables; with an argument, the rank of that number raises."""

import os
import sys

import torch
import torch.distributed as dist

from lab import note

dist.init_process_group()
note("mpi", [int(os.environ[name]) for name in ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID")])
note("torchrun", [int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")])
note("group", [dist.get_rank(), dist.get_world_size()])
if sys.argv[1:] == [str(dist.get_rank())]:
    raise ValueError("as it was told")
x = torch.ones(1)
dist.all_reduce(x)
note("sum", x)
dist.destroy_process_group()
