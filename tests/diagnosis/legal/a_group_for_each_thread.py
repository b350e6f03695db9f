"""Two threads, each with a group of its own: their calls come in any order."""

import threading

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
groups = [dist.new_group([0, 1, 2]) for _ in range(2)]


def reduce(group, times):
    for _ in range(times):
        dist.all_reduce(torch.ones(64), group=group)


threads = [threading.Thread(target=reduce, args=(group, 20)) for group in groups]
for thread in threads if rank != 1 else threads[::-1]:
    thread.start()
for thread in threads:
    thread.join()
dist.barrier()
