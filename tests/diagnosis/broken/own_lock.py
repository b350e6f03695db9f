# kind: never_entered
# rank: 2
"""A thread holds the lock that the main thread wants, and waits for the main thread."""

import threading

import torch
import torch.distributed as dist

lock, held, wanted = threading.Lock(), threading.Event(), threading.Event()


def prefetch():
    with lock:
        held.set()
        wanted.wait()


dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 2:
    threading.Thread(target=prefetch, daemon=True).start()
    held.wait()
    lock.acquire()  # cause
    wanted.set()
dist.all_reduce(torch.ones(1))
