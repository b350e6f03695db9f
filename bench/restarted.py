"""All-reduces in which rank 1 is killed once, and says when; for `launchers.py`."""

import os
import signal
import time

import torch
import torch.distributed as dist

KILLED_AT = 3

dist.init_process_group("gloo")
first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
for step in range(10):
    if first and step == KILLED_AT and dist.get_rank() == 1:
        print(f"killed {time.time()}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1000))
    if step == 0 and not first:
        print(f"first step {time.time()}", flush=True)
dist.destroy_process_group()
