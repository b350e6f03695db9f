"""A run in a pipe: a line for everything that happens, for people or as JSON."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import IO

from lab.features.watch.follow import Follower, Happening
from lab.features.watch.now import Now
from lab.report.harmless import harmless
from lab.report.table import MANY, alike
from lab.words import name_ranks


class Lines:
    """Writes what happens in a run, a line each.

    Args:
        stream: where they go.
        as_json: whether each is a JSON object.
        late_s: what happened comes so much later from one rank than from another; until then lines are held back, so
            that they stand in the order of time.
    """

    presses = False

    def __init__(self, stream: IO[str], *, as_json: bool, late_s: float) -> None:
        self._stream = stream
        self._as_json = as_json
        self._late_s = late_s
        self._held: list[Happening] = []

    def show(self, now: Now, follower: Follower) -> None:
        """Write what has happened."""
        self._held = sorted([*self._held, *follower.happened], key=attrgetter("time_s"))
        if now.elapsed_s is not None:
            settled = now.elapsed_s - self._late_s
            self._write(bisect_right(self._held, settled, key=attrgetter("time_s")))

    def close(self) -> None:
        """Write the rest."""
        self._write(len(self._held))

    def _write(self, count: int) -> None:
        settled = self._held[:count]
        if self._as_json:
            lines = [*map(_json_line, settled)]
        elif len({one.rank for one in settled}) > MANY:
            same = alike((at, (one.what, one.text, one.rank is None)) for at, one in enumerate(settled))
            lines = [_text_line(settled[places[0]], _ranks(settled[at] for at in places)) for places, _ in same]
        else:
            lines = [_text_line(one, _ranks([one])) for one in settled]
        self._stream.write("".join(lines))
        self._stream.flush()
        del self._held[:count]


def _json_line(one: Happening) -> str:
    data = {"time_s": round(one.time_s, 6), "event": one.what, "rank": one.rank, "text": one.text, **one.facts}
    return json.dumps(data) + "\n"


def _ranks(same: Iterable[Happening]) -> str:
    """Whom it happened to."""
    ranks = [one.rank for one in same if one.rank is not None]
    return "" if not ranks else "check" if min(ranks) < 0 else name_ranks(set(ranks))


def _text_line(one: Happening, who: str) -> str:
    said = f"| {one.text}" if one.what == "output" else one.text
    return harmless(f"{one.time_s:10.3f}  {who:<8} {said}\n")
