"""The rendezvous store of a run, hosted by the agent of node 0, like that of torchrun's agent.

It listens before any worker starts, so that no worker waits half a second for a retry.
"""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta
from functools import partial
from typing import Any

from . import processes
from .messages.agent import Store
from .users import User

START_DEADLINE_S = 10.0
_READY = "ready"


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
    with open(ready_r, errors="replace") as answers:
        answer = answers.readline().strip()  # the store keeps its end open if it is ready
    if answer != _READY:
        why = answer or "its process was killed"
        raise StoreError(f"the rendezvous store at {asked.address}:{asked.port} ended while it started: {why}")
    return pid


def _serve(listen_fd: int, asked: Store, ready: int, user: User, agent: int) -> None:
    try:
        processes.drop_privileges(*user)
        processes.die_with_parent(agent)  # again: a change of user clears it
        store = _listen(listen_fd, asked)
        store.set("lab/ready", "1")
    except Exception as error:
        first = str(error).partition("\n")[0]
        os.write(ready, f"{type(error).__name__}: {first}\n".encode())
        return
    os.write(ready, f"{_READY}\n".encode())
    while True:
        time.sleep(3600)


def _listen(listen_fd: int, asked: Store) -> Any:
    """Return a store that listens at a descriptor; before torch 2.8, only the store without libuv can."""
    import torch.distributed as dist

    how = {"is_master": True, "timeout": timedelta(seconds=START_DEADLINE_S), "wait_for_workers": False}
    make = partial(dist.TCPStore, *asked, **how, master_listen_fd=listen_fd)
    try:
        return make(use_libuv=True)
    except (NotImplementedError, RuntimeError) as error:
        if "listen fd" not in str(error):
            raise
    return make(use_libuv=False)
