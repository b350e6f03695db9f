"""The parent of a local cluster's nodes: imports torch once and forks one agent a node."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys

from . import agent, processes, typed
from .config import Config


def main() -> None:
    """Entry point: the last arguments are the file to hold while this process lives, and the agents' configurations."""
    life, configs_json = sys.argv[-2:]
    configs = [typed.read(Config, config) for config in json.loads(configs_json)]
    sys.argv = [""]
    life_fd = os.open(life, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(life_fd, fcntl.LOCK_EX)
    agent.import_torch()
    me = os.getpid()
    for config in configs:
        if os.fork() == 0:
            os.close(life_fd)
            os.setsid()
            processes.die_with_parent(me)
            agent.serve(config)
            os._exit(1)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # the agents follow their parent
    while True:
        try:
            os.wait()
        except ChildProcessError:
            os.unlink(life)  # no node is left to hold: this is an orderly end
            os._exit(0)
