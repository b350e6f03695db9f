"""How far the clocks of nodes are from this machine's: found by exchanges when the run begins, and when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from lab.node.messages.agent import AskTime, Claimed, TimeTold
from lab.node.recorder.journal import clock_id
from lab.record.events import Clock

EXCHANGES = 8
"""Of so many in a row, the one that took least time tells most."""


class Clocks:
    """Of the nodes of one run. Those on this machine's kernel have its clock, and are not asked.

    Args:
        tell: takes what was found.
    """

    def __init__(self, tell: Callable[[Clock], object]) -> None:
        self.ask: Callable[[str, AskTime], object] = lambda *_: None
        """Says something to the agent of a node."""
        self._tell = tell
        self._best: dict[str, Clock] = {}
        """By node: of the exchanges that go on."""
        self._left: dict[str, int] = {}
        """By node: how many of them are still to come."""
        self._own: dict[str, tuple[str, str]] = {}
        """By node: its address, and its clock, where that is not this machine's."""

    def claimed(self, node: str, address: str, answer: Claimed, sent: float) -> None:
        """A node takes part, which was asked at `sent`: the first exchange."""
        clock = clock_of(node, answer, sent, time.time())._replace(address=address)
        self._tell(clock)
        self._own.pop(node, None)
        self._left.pop(node, None)
        if clock.error_s:
            self._own[node] = address, answer.boot
            self.compare(answer.run, [node])

    def compare(self, run: str, nodes: Iterable[str]) -> None:
        """Begin exchanges with the nodes that have a clock of their own, and are not at it."""
        for node in {node for node in self._own.keys() & set(nodes) if not self._left.get(node)}:
            self._left[node] = EXCHANGES
            self._best.pop(node, None)
            self.ask(node, AskTime(run, time.time()))

    def hear(self, node: str, told: TimeTold) -> None:
        """A node has said what time it is: ask again, or tell what was best."""
        now = time.time()
        if not self._left.get(node) or not told.asked <= now:
            return
        address, own = self._own[node]
        took_s = now - told.asked
        asked = (told.asked + now) / 2
        clock = Clock(asked, node, round(told.time - asked, 9), round(took_s / 2, 9), own, address, told.monotonic_s)
        self._best[node] = min(self._best.get(node, clock), clock, key=lambda one: one.error_s)
        self._left[node] -= 1
        if self._left[node]:
            self.ask(node, AskTime(told.run, time.time()))
        else:
            self._tell(self._best[node])

    def settled(self, nodes: Iterable[str]) -> bool:
        """Whether none of these is still asked."""
        return not any(map(self._left.get, nodes))


def clock_of(node: str, answer: Claimed, sent: float, received: float) -> Clock:
    """How far a node's clock is ahead of this machine's, and how wrong that may be; it was asked at `sent`."""
    if answer.boot.partition(" ")[0] == clock_id().partition(" ")[0]:
        return Clock(received, node, 0.0, 0.0, answer.boot)
    offset = round(answer.time - (sent + received) / 2, 9)
    return Clock(received, node, offset, round((received - sent) / 2, 9), answer.boot)
