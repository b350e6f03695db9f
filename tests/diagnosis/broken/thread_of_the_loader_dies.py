# kind: never_entered
# rank: 1
"""A thread fetches what the next step needs; on one rank it fails, and the script waits for it."""

import queue
import threading

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
fetched = queue.Queue()


def fetch():
    if dist.get_rank() == 1:
        raise KeyError("no such shard")
    fetched.put(torch.ones(4))


threading.Thread(target=fetch).start()
batch = fetched.get()  # cause
dist.all_reduce(batch)
