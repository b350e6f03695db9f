"""The parent of a local cluster's nodes: imports torch once, forks one agent a node, and says how each ended."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from contextlib import suppress

from . import agent, processes, typed, warm
from .config import Config, ended_file


def main() -> None:
    """Entry point: the last arguments are the file to hold while this process lives, and the agents' configurations."""
    life, configs_json = sys.argv[-2:]
    configs = [typed.read(Config, config) for config in json.loads(configs_json)]
    sys.argv = [""]
    life_fd = os.open(life, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(life_fd, fcntl.LOCK_EX)
    warm.import_torch()
    me, nodes = os.getpid(), dict[int, Config]()
    for config in configs:
        pid = os.fork()
        nodes[pid] = config
        if pid == 0:
            os.close(life_fd)
            os.setsid()
            processes.die_with_parent(me)
            agent.serve(config)
            os._exit(1)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # the agents follow their parent
    while True:
        try:
            _say_how_it_ended(nodes, *os.wait())
        except ChildProcessError:
            os.unlink(life)  # no node is left to hold: this is an orderly end
            os._exit(0)


def _say_how_it_ended(nodes: dict[int, Config], pid: int, status: int) -> None:
    socket = nodes[pid].socket if pid in nodes else None
    if socket is None:
        return
    path, code = ended_file(socket), os.waitstatus_to_exitcode(status)
    with suppress(OSError):  # the cluster is being removed
        with open(f"{path}.new", "w") as file:
            file.write(str(code if code >= 0 else 128 - code))
        os.rename(f"{path}.new", path)
