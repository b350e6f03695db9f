"""Two threads of each rank, each with a group of its own."""

import random
import threading

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
groups = [dist.new_group(group_desc=name) for name in ("left", "right")]


def work(group, ops):
    for op in ops:
        op(group)


def reduce(group):
    dist.all_reduce(torch.ones(2), group=group)


def message(group):
    if dist.get_rank() == 0:
        dist.send(torch.ones(3), 1, group=group)
    else:
        dist.recv(torch.zeros(3), 0, group=group)


threads = [
    threading.Thread(target=work, args=(groups[0], [reduce, message, dist.barrier])),
    threading.Thread(target=work, args=(groups[1], [message, reduce, reduce])),
]
random.shuffle(threads)
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
dist.destroy_process_group()
