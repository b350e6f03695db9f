# kind: mismatch
# rank: 1
"""On one rank a thread for the metrics reduces in the group of the training, in its midst."""

import threading

import torch
import torch.distributed as dist


def report(value):
    dist.broadcast(value, src=1)  # cause


dist.init_process_group("gloo")
rank = dist.get_rank()
loss = torch.ones(1)
for step in range(4):
    if rank == 1 and step == 2:
        thread = threading.Thread(target=report, args=(torch.ones(1),))
        thread.start()
        thread.join(0.5)
    dist.all_reduce(loss)
