# kind: own_code | waiting | never_entered
# rank: nobody | 1
# innocent: 0 2
# says: did not end
"""All work is done, but on one rank a thread that fetches data goes on for ever."""

import threading
import time

import torch
import torch.distributed as dist


def prefetch():
    while True:
        time.sleep(0.05)  # cause


dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 1:
    threading.Thread(target=prefetch).start()
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
