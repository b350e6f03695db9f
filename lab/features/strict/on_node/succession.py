"""Agents of a strict node: each serves one run, so that no worker has data of an earlier run in its memory.

A worker is a fork of its agent, and an agent has had files, notes, and the check of its run in memory. So the process
that imported torch serves no run. It forks an agent for each of them, and learns nothing but what the next one needs.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable
from functools import partial

from ....node import processes, warm


def begin_succession() -> tuple[set[int], partial[None]]:
    """Return in a fork of this process for each run. If an agent ends in another way, end like it.

    Returns:
        The ports of the stores of earlier runs. And a function that ends the agent: its successor gets these ports, and
        imports these parts of torch.
    """
    ports: set[int] = set()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # the first process of a container ignores it otherwise
    while True:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        if (agent := os.fork()) == 0:
            processes.die_with_parent(os.getppid())
            processes.become_subreaper()
            os.close(reader)
            return ports, partial(_hand_over, writer)
        os.close(writer)
        with open(reader, "rb") as report:
            known = report.read()
        _, status = os.waitpid(agent, 0)
        if not known:
            os._exit(os.WEXITSTATUS(status) or 128 * bool(status) + status)
        used, imported = json.loads(known)
        ports.update(used)
        warm.import_frozen(imported)


def _hand_over(report: int, ports: Iterable[int], imported: Iterable[str]) -> None:
    os.write(report, json.dumps([[*ports], [*imported]]).encode())
    os._exit(0)
