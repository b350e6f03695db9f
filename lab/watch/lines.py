"""A run in a pipe: a line for everything that happens, for people or as JSON."""

from __future__ import annotations

import json
from bisect import bisect_right
from operator import attrgetter
from typing import IO

from lab.report.harmless import harmless
from lab.watch.follow import Follower, Happening
from lab.watch.now import Now


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
        self._line = _json_line if as_json else _text_line
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
        self._stream.write("".join(map(self._line, self._held[:count])))
        self._stream.flush()
        del self._held[:count]


def _json_line(one: Happening) -> str:
    data = {"time_s": round(one.time_s, 6), "event": one.what, "rank": one.rank, "text": one.text, **one.facts}
    return json.dumps(data) + "\n"


def _text_line(one: Happening) -> str:
    who = "" if one.rank is None else f"rank {one.rank}" if one.rank >= 0 else "check"
    said = f"| {one.text}" if one.what == "output" else one.text
    return harmless(f"{one.time_s:10.3f}  {who:<8} {said}\n")
