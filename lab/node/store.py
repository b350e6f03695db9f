"""The rendezvous store of a run, hosted by the agent of node 0, like that of torchrun's agent.

It listens before any worker starts, so that no worker waits half a second for a retry.
"""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta
from functools import partial

from . import processes
from .messages.agent import Store
from .users import User

START_DEADLINE_S = 10.0


class StoreError(RuntimeError):
    """The store cannot listen at its address."""


def start_store(asked: Store, user: User) -> int:
    """Host a TCPStore in a separate process, because it needs a thread and the agent must have only one.

    Kill the process, whose pid is returned, to end the store.

    Raises:
        StoreError: the port is in use, the address is not this node's, or the process ended.
    """
    family = socket.AF_INET6 if ":" in asked.address else socket.AF_INET
    try:
        listener = socket.create_server((asked.address, asked.port), family=family, backlog=1024)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise StoreError(f"the rendezvous store cannot listen at {asked.address}:{asked.port}: {why}") from error
    ready_r, ready_w = os.pipe2(os.O_CLOEXEC)
    serve = partial(_serve, listener.fileno(), asked, ready_w, user, os.getpid())
    pid = processes.fork_helper(serve, keep=(listener.fileno(), ready_w))
    os.close(ready_w)
    listener.close()
    answer = os.read(ready_r, 1)
    os.close(ready_r)
    if answer != b"+":
        raise StoreError(f"the rendezvous store at {asked.address}:{asked.port} ended while it started")
    return pid


def _serve(listen_fd: int, asked: Store, ready: int, user: User, agent: int) -> None:
    import torch.distributed as dist

    processes.drop_privileges(*user)
    processes.die_with_parent(agent)  # again: a change of user clears it
    store = dist.TCPStore(
        *asked,
        is_master=True,
        timeout=timedelta(seconds=START_DEADLINE_S),
        wait_for_workers=False,
        master_listen_fd=listen_fd,
        use_libuv=True,
    )
    store.set("lab/ready", "1")
    os.write(ready, b"+")
    while True:
        time.sleep(3600)
