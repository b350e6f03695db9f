# kind: rendezvous | never_entered | late
# rank: 1
# timeout: 8s
# innocent: 0 2
"""One rank prepares its data before the rendezvous, whose time-out is short."""

import os
import time
from datetime import timedelta

import torch.distributed as dist

if os.environ["RANK"] == "1":
    time.sleep(5)  # cause
dist.init_process_group("gloo", timeout=timedelta(seconds=1))
dist.barrier()
