"""The rendezvous store of a run, hosted by the agent of node 0 as torchrun's agent hosts it.

It listens before any worker starts, so that no worker waits half a second to try again.
"""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta

from . import processes
from .messages.agent import Store
from .users import User

START_DEADLINE_S = 10.0


class StoreError(RuntimeError):
    """The store cannot listen at its address."""


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise StoreError(f"the rendezvous store cannot listen at {address}:{port}: {error.strerror}") from error
    return listener


def start_store(asked: Store, user: User) -> int:
    """Host a TCPStore in a process of its own, because it needs a thread and the agent must stay without one.

    Killing the process, whose pid is returned, ends the store.

    Raises:
        StoreError: the port is taken, the address is not this node's, or the process ended.
    """
    listener = _listen(asked.address, asked.port)
    ready_r, ready_w = os.pipe2(os.O_CLOEXEC)
    agent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            processes.leave_agent_behind(-1, null, null, keep=(listener.fileno(), ready_w))
            processes.drop_privileges(*user)
            processes.die_with_parent(agent)
            _serve(listener.detach(), asked, ready_w)
        finally:
            os._exit(1)
    os.close(ready_w)
    listener.close()
    answer = os.read(ready_r, 1)
    os.close(ready_r)
    if answer != b"+":
        raise StoreError(f"the rendezvous store at {asked.address}:{asked.port} ended while it started")
    return pid


def _serve(listen_fd: int, asked: Store, ready: int) -> None:
    import torch.distributed as dist

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
