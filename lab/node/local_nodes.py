"""The parent of a local cluster's nodes: imports torch once, forks one agent for each node, and reports their exits.

Processes with access to its folder may ask over a Unix socket for the agent of a stopped node. They send a line with
the name of the node; the answer is an error, or an empty line.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, NoReturn

from . import agent, processes, warm
from .messages import typed
from .messages.agent import Config, ended_file

_ASKED_TIMEOUT_S = 1.0
_LONGEST_LINE = 1024
_FILES, _FILES_OF_A_NODE = 512, 8
"""Open files of a rank or agent, and of each node: its own, and a connection to each of the others."""
_MANY = 16
"""For more nodes than that it imports what their agents would import later, each for its next run, and gathers its
memory. A fork and its end then take 5 ms instead of 18, for each node and later for each worker."""


class Zygote:
    """Parent of the nodes of one cluster.

    Args:
        life: a file that is locked while this process lives.
        control: path of the socket for requests.
        configs: of the agents.
    """

    def __init__(self, life: str, control: str, configs: list[Config]) -> None:
        self._life_fd = os.open(life, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._life_fd, fcntl.LOCK_EX)
        self._configs = {config.node: config for config in configs}
        self._running: dict[int, Config] = {}
        """Configurations by pid of the running agent."""
        self._own = [self._life_fd]
        """Descriptors that no agent keeps."""
        self._control = control

    def serve(self) -> NoReturn:
        """Fork every agent, then wait for exits and requests."""
        for config in self._configs.values():
            self._fork(config)
        control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        control.bind(self._control)
        control.listen(4)
        self._own.append(control.fileno())
        signal.signal(signal.SIGCHLD, self._reap)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # the agents follow their parent
        self._reap()  # agents that ended before the handler was set
        while True:
            with suppress(OSError):  # the client has gone
                self._answer(control.accept()[0])

    def _fork(self, config: Config, *own: int) -> None:
        """Fork an agent; `own` are more descriptors that it does not keep."""
        me, held = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # until it is registered
        if (pid := os.fork()) == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            for descriptor in (*self._own, *own):
                os.close(descriptor)
            os.setsid()
            processes.die_with_parent(me)
            agent.serve_node(config)
            os._exit(1)
        self._running[pid] = config
        signal.pthread_sigmask(signal.SIG_SETMASK, held)

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(_ASKED_TIMEOUT_S)
            name = connection.recv(_LONGEST_LINE).decode("utf-8", "replace").strip()
            config, problem = self._configs.get(name), ""
            if config is None:
                problem = f"there is no node {name!r}"
            elif config in self._running.values():
                problem = "it already runs"
            else:
                for path in (ended_file(config.socket), f"{config.socket}.new") if config.socket else ():
                    with suppress(FileNotFoundError):  # the report of the previous agent
                        os.unlink(path)
                self._fork(config, connection.fileno())
            connection.sendall(f"{problem}\n".encode())

    def _reap(self, *_: Any) -> None:
        """Write the exit status of every agent that has ended, and kill the processes that it left to this one."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                if (ended := self._running.pop(pid, None)) is not None and ended.socket is not None:
                    code, path = os.waitstatus_to_exitcode(status), ended_file(ended.socket)
                    with suppress(OSError):  # the cluster is being removed
                        with open(f"{path}.new", "w") as file:
                            file.write(str(code if code >= 0 else 128 - code))
                        os.rename(f"{path}.new", path)
        processes.kill_processes(set(processes.children_of()(os.getpid())) - self._running.keys())


def main() -> None:
    """Run the parent of a local cluster.

    The last arguments are the file to lock and the path of the socket. Configurations of the agents come on standard
    input.
    """
    life, control = sys.argv[-2:]
    configs = [typed.read_typed(Config, config) for config in json.load(sys.stdin)]
    processes.set_streams([-1])
    processes.become_subreaper()  # else what a killed agent leaves could not be found
    sys.argv = [""]
    processes.allow_open_files(_FILES + _FILES_OF_A_NODE * len(configs))
    zygote = Zygote(life, control, configs)
    warm.import_torch()
    warm.import_frozen(os.environ.pop(warm.PRELOAD, "").split())
    if len(configs) > _MANY:
        warm.prepare_for_forks()
    zygote.serve()
