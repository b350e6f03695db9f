"""The parent of a local cluster's nodes: imports torch once, forks one agent a node, and says how each ended.

Whoever has its folder may ask it over a Unix socket for the agent of a node that does not run: a line with the name of
the node, answered by what is in the way, or nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import NoReturn

from . import agent, processes, warm
from .config import Config, ended_file
from .messages import typed
from .processes import allow_open_files
from .warm import Heap

_ASKED_TIMEOUT_S = 1.0
_LONGEST_LINE = 1024
_FILES, _FILES_OF_A_NODE = 512, 8
"""That a rank, or the agent of several, may have open: its own, and a connection to each of the others."""
_MANY = 16
"""For more nodes than that it imports what their agents would else import by themselves, each for its next run, and
gathers its memory: a fork and its end then take 5 ms instead of 18, of each node and later of each worker."""


class Zygote:
    """What holds the nodes of one cluster.

    Args:
        life: a file that is locked while this process lives.
        control: where it is asked for agents.
        configs: those of the agents.
    """

    def __init__(self, life: str, control: str, configs: list[Config]) -> None:
        self._life_fd = os.open(life, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._life_fd, fcntl.LOCK_EX)
        self._configs = {config.node: config for config in configs}
        self._running: dict[int, Config] = {}
        """By the pid of the agent."""
        self._own = [self._life_fd]
        """Descriptors that no agent keeps."""
        self._control = control

    def serve(self) -> NoReturn:
        """Fork every agent, then wait for their ends and for who asks for one again."""
        for config in self._configs.values():
            self._fork(config)
        asked = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        asked.bind(self._control)
        asked.listen(4)
        wake_r, wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._own += [asked.fileno(), wake_r, wake_w]
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # the agents follow their parent
        self._reap()  # who ended before it could be heard of
        while True:
            ready, _, _ = select.select([asked.fileno(), wake_r], [], [])
            if wake_r in ready:
                os.read(wake_r, 4096)
            self._reap()
            if asked.fileno() in ready:
                with suppress(OSError):  # whoever asks has gone
                    self._answer(asked.accept()[0])

    def _fork(self, config: Config) -> None:
        me = os.getpid()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for descriptor in self._own:
                os.close(descriptor)
            os.setsid()
            processes.die_with_parent(me)
            agent.serve(config)
            os._exit(1)
        self._running[pid] = config

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(_ASKED_TIMEOUT_S)
            name = connection.recv(_LONGEST_LINE).decode("utf-8", "replace").strip()
            config = self._configs.get(name)
            problem = f"there is no node {name!r}" if config is None else ""
            if any(running.node == name for running in self._running.values()):
                problem = "it runs already"
            if config is not None and not problem:
                self._own.append(connection.fileno())
                self._fork_again(config)
                self._own.pop()
            connection.sendall(f"{problem}\n".encode())

    def _fork_again(self, config: Config) -> None:
        """Fork an agent, with nothing left that the one before it had said of itself."""
        for path in (ended_file(config.socket), f"{config.socket}.new") if config.socket else ():
            with suppress(FileNotFoundError):
                os.unlink(path)
        self._fork(config)

    def _reap(self) -> None:
        """Say of every agent that has ended how it did."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                ended = self._running.pop(pid, None)
                if ended is not None and ended.socket is not None:
                    _say_how_it_ended(ended.socket, os.waitstatus_to_exitcode(status))


def _say_how_it_ended(socket_path: str, code: int) -> None:
    path = ended_file(socket_path)
    with suppress(OSError):  # the cluster is being removed
        with open(f"{path}.new", "w") as file:
            file.write(str(code if code >= 0 else 128 - code))
        os.rename(f"{path}.new", path)


def _read_nothing_more() -> None:
    """Have standard input be empty, for this process and those that it forks."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def main() -> None:
    """Entry point: the last arguments are the file to hold and where to listen; on standard input come the agents."""
    life, control = sys.argv[-2:]
    configs = [typed.read(Config, config) for config in json.load(sys.stdin)]
    _read_nothing_more()
    sys.argv = [""]
    allow_open_files(_FILES + _FILES_OF_A_NODE * len(configs))
    zygote = Zygote(life, control, configs)
    warm.import_torch()
    if len(configs) > _MANY:
        warm.import_frozen(warm.SLOW_MODULES)
        Heap().gather_all()
    zygote.serve()
