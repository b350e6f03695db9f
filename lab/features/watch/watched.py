"""What a run shares with whoever watches it: where its record is, and, step by step, which calls may go on."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab.node.messages.agent import EVERY_RANK, RUN_ON, Follow, Held, LetGo
from lab.record.events import Event
from lab.run.companion import Companion
from lab.run.conversation import Conversation

LONGEST_HOLD_S = 3600.0
"""Whoever holds ranks for longer without a word is not there any more: the time limit counts again."""


class Watched(Companion):
    """Handed to a run with its options; all of it may be called from any thread.

    Args:
        step: whether every rank is held before each call that is recorded, until `let_go`.
    """

    def __init__(self, *, step: bool = False) -> None:
        self.step = step
        self.path: Path | None = None
        """The record; another one where the run was begun again because its cluster was broken."""
        self._lock = threading.Lock()
        self._asked: dict[int, int] = {}
        self._held_since: float | None = None
        self._held_s = 0.0
        self._bell, self._button = socket.socketpair()
        for end in (self._bell, self._button):
            end.setblocking(False)

    # -- for whoever watches

    def let_go(self, calls: Mapping[int, int]) -> None:
        """Let ranks go on that are held, each at the call of this index."""
        with self._lock:
            self._asked.update(calls)
            if self._held_since is not None:
                self._held_s += self._holding_s()
                self._held_since = time.monotonic()
            with suppress(OSError):  # it rings already, or the run is over
                self._button.send(b".")

    def run_on(self) -> None:
        """Hold nobody from now on."""
        self.let_go({EVERY_RANK: RUN_ON})

    def tell_held(self, *, held: bool) -> None:
        """Say whether a rank is held now."""
        with self._lock:
            if held and self._held_since is None:
                self._held_since = time.monotonic()
            elif not held and self._held_since is not None:
                self._held_s += self._holding_s()
                self._held_since = None

    # -- for the run

    @property
    def held_s(self) -> float:
        """For how long ranks have been held, all in all: so much longer the run may take."""
        with self._lock:
            return self._held_s + self._holding_s()

    def _holding_s(self) -> float:
        return 0.0 if self._held_since is None else min(LONGEST_HOLD_S, time.monotonic() - self._held_since)

    def fileno(self) -> int:
        """Becomes readable when there is something to take."""
        return self._bell.fileno()

    def describe(self, record: Path) -> Mapping[str, Any]:
        """Note where the record is; the plan says whether the run goes step by step."""
        self.path = record
        return {"stepped": True} if self.step else {}

    def claim(self, agents: Conversation, node: str) -> None:
        """Have the agent of a node send traces soon, and hold ranks where the run goes step by step."""
        agents.say(node, Follow(agents.run, self.step))

    def attend(self, agents: Conversation, record: Callable[[Event], object], done: Callable[[], object]) -> None:
        """Have what is let go passed on to the agents of the run, for as long as it listens to them."""
        agents.hear(self.fileno(), lambda: self._pass_on(agents))

    def _pass_on(self, agents: Conversation) -> None:
        calls = self.take()
        if calls:
            agents.say_all(LetGo(agents.run, tuple(Held(rank, call) for rank, call in calls.items())))

    def take(self) -> dict[int, int]:
        """What was let go since the last time."""
        with suppress(BlockingIOError):
            self._bell.recv(4096)
        with self._lock:
            asked, self._asked = self._asked, {}
        return asked
