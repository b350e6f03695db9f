"""Watches a run ten times a second, shows it, and releases ranks that are held when a key is pressed."""

from __future__ import annotations

import os
import select
import termios
import threading
import time
import tty
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

from lab.features.watch.now import Follower, Now
from lab.features.watch.watched import Watched
from lab.record.read import Record
from lab.trace.model import Call
from lab.trace.steps import Step
from lab.words import listing, name_ranks


class Keys:
    """Gives each key as it is pressed, without Enter, while it is entered; Ctrl-C stays what it is.

    Args:
        stream: of a terminal, or a pipe.
        wanted: whether there is a use for keys; else the terminal is left alone.
    """

    def __init__(self, stream: IO[str], wanted: object = True) -> None:
        self._fd: int | None = None
        self._before: list[Any] | None = None
        if not wanted:
            return
        try:
            self._fd = stream.fileno()
        except (OSError, ValueError, AttributeError):  # closed, or no file
            return
        if os.isatty(self._fd) and os.tcgetpgrp(self._fd) != os.getpgrp():
            self._fd = None  # in the background, reading would stop this process

    def __enter__(self) -> Keys:
        if self._fd is not None and os.isatty(self._fd):
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd, termios.TCSADRAIN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._fd is not None and self._before is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    @property
    def descriptors(self) -> list[int]:
        """What becomes readable when a key is pressed."""
        return [] if self._fd is None else [self._fd]

    def read(self) -> str:
        """The keys that were pressed; only where there is something to read."""
        if self._fd is None:
            return ""
        try:
            data = os.read(self._fd, 64)
        except OSError:
            data = b""
        if not data:
            self._fd = None
        return data.decode("utf-8", "replace")


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


_LOOK_S = 0.1
RUN_ON_KEY = "c"


class Show(Protocol):
    """Something that shows a run."""

    presses: bool
    """Whether whoever sees it can let ranks go on there."""

    def show(self, now: Now, follower: Follower) -> None:
        """Show it as it is now; returns quickly."""

    def close(self) -> None:
        """Nothing more comes."""


class Session:
    """Watches one run.

    Args:
        path: the record of the run; None while it has none. It may become another one.
        shows: what shows it.
        stepper: lets its ranks go on, where they are held.
        keys: of whoever sits before it; where they end, nobody is held any more, if there is no page to press on.
    """

    def __init__(
        self,
        path: Callable[[], Path | None],
        shows: Sequence[Show],
        stepper: Stepper | None = None,
        keys: Keys | None = None,
    ) -> None:
        self._path = path
        self._shows = shows
        self._stepper = stepper
        self._keys = keys
        self._keys_alone = keys is not None and not any(show.presses for show in shows)

    def follow(self, ended: threading.Event | None = None) -> None:
        """Watch until the run is over; where `ended` is given, until that is set and all of it was shown."""
        try:
            self._follow(ended)
        finally:
            for show in self._shows:
                show.close()

    def _follow(self, ended: threading.Event | None) -> None:
        follower: Follower | None = None
        shown: Now | None = None
        while True:
            last, more = ended is not None and ended.is_set(), False
            path = self._path()
            if path is not None and (follower is None or follower.record.path != path):
                follower = Follower(Record(path=path), stepping=self._stepper is not None)
            while follower is not None and follower.attempt < follower.record.number:
                follower = self._go_on(follower, shown)
            if follower is not None:
                now, more = follower.look(time.time())
                if self._stepper is not None:
                    now = self._stepper.look(now, follower)
                shown = now
                self._show(now, follower)
                last = last if ended is not None else now.over
                if last and not more:
                    follower.finish()
                    if follower.happened:
                        self._show(now, follower)
            if last and not more:
                break
            if not more:
                self._pause()

    def _go_on(self, follower: Follower, shown: Now | None) -> Follower:
        """The workers were begun anew: show what was left of the attempt before, and follow the next one."""
        following = follower.go_on()
        if shown is not None:
            self._show(shown, follower)
        if self._stepper is not None:
            self._stepper.begin_anew()
        return following

    def _show(self, now: Now, follower: Follower) -> None:
        for show in self._shows:
            show.show(now, follower)

    def _pause(self) -> None:
        """Wait a moment, or until a key is pressed."""
        ready, _, _ = select.select(self._keys.descriptors if self._keys else [], [], [], _LOOK_S)
        if self._keys is None or self._stepper is None:
            return
        if self._keys_alone and not self._keys.descriptors:
            self._stepper.run_on()
        for key in self._keys.read() if ready else "":
            if key == RUN_ON_KEY:
                self._stepper.run_on()
            else:
                self._stepper.press()
