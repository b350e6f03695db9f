"""Talks nonsense to the store of its run, fills it and deletes what is in it; rank 0 waits for it there in vain."""

import contextlib
import os
import socket
from datetime import timedelta

from torch.distributed import TCPStore

address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
for _ in range(200):
    with contextlib.suppress(OSError), socket.create_connection(address, 1) as channel:
        channel.sendall(os.urandom(4096))
with contextlib.suppress(Exception):
    store = TCPStore(*address, is_master=False, timeout=timedelta(seconds=2))
    for number in range(2000):
        store.set(f"default_pg/0//{number}", "x" * 10_000)
        store.delete_key(f"{number}")
