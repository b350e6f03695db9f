"""A run that somebody watches: its traces are sent sooner, and step by step its workers are held and let go."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from .messages.agent import EVERY_RANK, Follow, LetGo
from .rank_process import Worker

_UNWATCHED_S, _FOLLOWED_S, _STEPPED_S = 1.0, 0.1, 0.03


class Watched:
    """How a run is watched; not at all until somebody says so."""

    def __init__(self) -> None:
        self.every_s = _UNWATCHED_S
        """How often traces are sent."""
        self.step = False
        """Whether workers that start are held before each call that is recorded."""

    def follow(self, asked: Follow) -> None:
        """Somebody watches from now on."""
        self.every_s = _STEPPED_S if asked.step else _FOLLOWED_S
        self.step = asked.step


def let_go(workers: Iterable[Worker], asked: LetGo) -> None:
    """Tell workers at which of their calls they may go on."""
    for rank, call in asked.calls:
        for worker in workers:
            if rank in (worker.rank, EVERY_RANK) and worker.step_fd >= 0:
                with suppress(OSError):  # it has ended, or does not listen
                    os.write(worker.step_fd, b"%d\n" % call)
