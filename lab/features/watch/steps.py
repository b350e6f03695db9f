"""Step by step: which of the calls that ranks are held at go on together when a key is pressed.

The calls of a step go on once all its ranks have come to it, so that nobody is inside a call whose time limit runs
while others are held. Where no step can be whole, as in a deadlock, everybody goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from lab.features.watch.follow import Follower
from lab.features.watch.now import Now
from lab.features.watch.watched import Watched
from lab.trace.model import Call
from lab.trace.steps import Step
from lab.words import listing, name_ranks

_PATIENCE_S = 3.0
"""So long a press waits for ranks that are on their way."""


def whole_steps(ahead: Sequence[Step], held: Mapping[int, Call]) -> tuple[list[Step], list[Call]]:
    """The steps to which all their ranks have come, and those of their calls that are held."""
    whole, calls = [], []
    for step in ahead:
        ours = [call for rank, call in step.calls.items() if held.get(rank) is call]
        if ours and not (step.missing or (step.message and step.source is None)):
            whole.append(step)
            calls += ours
    return whole, calls


class Stepper:
    """Lets ranks of a run go on as keys are pressed, on a terminal or on a page."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._lock = threading.Lock()
        self._pressed: float | None = None
        self._running_on = False
        self._let_go: dict[int, int] = {}
        """By rank: the last of its calls that was let go."""

    def press(self) -> None:
        """Let the next step go on, now or as soon as its ranks have come."""
        with self._lock:
            self._pressed = time.monotonic()

    def run_on(self) -> None:
        """Hold nobody any more."""
        self._running_on = True
        self._watched.tell_held(held=False)
        self._watched.run_on()

    def begin_anew(self) -> None:
        """The workers were begun anew: no call of theirs was let go yet."""
        self._let_go = {}
        if self._running_on:
            self._watched.run_on()

    def look(self, now: Now, follower: Follower) -> Now:
        """Do what was asked for, as far as it can be done now; what is next is added to the view."""
        with self._lock:
            pressed = self._pressed
        if self._running_on:
            self._watched.tell_held(held=False)
            return replace(now, stepping=False)
        ranks = follower.tail.held
        self._watched.tell_held(held=bool(ranks) and not now.over)
        held = {rank: call for rank, call in ranks.items() if call.index > self._let_go.get(rank, 0)}
        steps, calls = whole_steps(follower.ahead, held)
        words = listing(step.title for step in steps)
        if held and not calls:
            calls = list(held.values())
            words = f"{name_ranks(held)}, though no step has all its ranks"
            if not _quiet(now, held):
                words = f"{name_ranks(held)}, once the others have come"
        if pressed is not None:
            waited_s = time.monotonic() - pressed
            if calls and (steps or _quiet(now, held) or waited_s > _PATIENCE_S):
                self._let_go.update((call.rank, call.index) for call in calls)
                self._watched.let_go({call.rank: call.index for call in calls})
                self._answered(pressed)
                words = ""
            elif waited_s > _PATIENCE_S:
                self._answered(pressed)
        return replace(now, next=words, next_steps=tuple(step.title for step in steps))

    def _answered(self, pressed: float) -> None:
        with self._lock:
            if self._pressed == pressed:  # else it was pressed again
                self._pressed = None


def _quiet(now: Now, held: Collection[int]) -> bool:
    """Whether nobody comes to a call before somebody is let go; who has just been let go is on the way."""
    return all(
        rank.rank in held or rank.state in ("ended", "halted") or (rank.state == "inside" and rank.waits_for)
        for rank in now.ranks
    )
