# kind: failed
# rank: 1
"""One rank is killed on its way to a monitored barrier, which names it as missing."""

import ctypes
from datetime import timedelta

import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 1:
    ctypes.string_at(0)  # cause
dist.monitored_barrier(timeout=timedelta(seconds=20))
