"""Looks at a run ten times a second, shows it, and takes the keys that are pressed."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from lab.features.watch.follow import Follower
from lab.features.watch.keys import Keys
from lab.features.watch.now import Now
from lab.features.watch.steps import Stepper
from lab.record.read import Record

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
