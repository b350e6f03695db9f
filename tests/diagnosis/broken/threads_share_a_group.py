# kind: mismatch
# rank: nobody
# says: two threads of each rank
"""A thread for the metrics of each rank reduces in the group of the training, while that trains."""

import threading

import torch
import torch.distributed as dist


def report_loss(times):
    for _ in range(times):
        dist.all_reduce(torch.ones(4))  # cause


dist.init_process_group("gloo")
gradient = torch.ones(1000)
thread = threading.Thread(target=report_loss, args=(300,))
thread.start()
for _ in range(300):
    dist.all_reduce(gradient)  # cause
thread.join()
