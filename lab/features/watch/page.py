"""The page of a run as it happens: the report's own style and pictures, fed by what is pushed to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.features.html import write as bundle
from lab.features.html.page import write_report
from lab.features.pictures.model import picture_of
from lab.features.pictures.svg import svg_of
from lab.features.timeline.colours import operation_tones, rank_colour
from lab.features.watch.follow import Follower
from lab.features.watch.now import Now, alike_ranks
from lab.operations import operation
from lab.record.layout import REPORT
from lab.record.read import Record
from lab.record.record_files import read_file
from lab.report.style import VERDICTS
from lab.report.table import MANY
from lab.trace.steps import Step
from lab.words import clip, format_duration, name_nodes, name_ranks

_SHOWN_S = 0.4
"""A picture stays for so long, so that eyes can follow."""
_LONGEST = 300
_MOST_REPORT_BYTES = 256 << 20
_WAITED_S = 0.5
"""A step in which ranks have waited for so long is shown before those that are over."""


def state_of(now: Now) -> dict[str, Any]:
    """What the page shows of a run, besides lines and pictures; many ranks that do the same are shown as one."""
    size = len(now.ranks)
    groups = [[rank] for rank in now.ranks] if size <= MANY else alike_ranks(now.ranks)
    shown = [max(ranks, key=lambda rank: rank.since_s or 0.0) for ranks in groups]
    ops = {call.op for rank in shown for call in rank.recent}
    data = replace(now, ranks=tuple(shown)).to_json()
    for rank, ranks in zip(data["ranks"], groups, strict=True):
        rank["name"], rank["node"] = name_ranks(one.rank for one in ranks), name_nodes(one.node for one in ranks)
        rank["colour"] = rank_colour(rank["rank"], size)
        for call in rank["recent"]:
            call["took"] = "" if call["took_s"] is None else format_duration(call["took_s"])
    tone = VERDICTS.get(now.verdict)
    data["sign"], data["tone"] = (tone.sign, tone.variable) if tone else ("", "")
    data["colours"] = {op: operation_tones(operation(op)) for op in sorted(ops)}
    return data


class Pictures:
    """Chooses the steps that are worth seeing now, and draws each once."""

    def __init__(self) -> None:
        self.drawn: dict[str, dict[str, Any]] = {}
        """`current` and `next`: title, place and picture of a step; absent where there is none."""
        self.version = 0
        self._keys: Mapping[str, object] = {}
        self._changed = 0.0

    def look(self, now: Now, follower: Follower) -> None:
        """Draw what has changed, if what is shown has been there for a moment."""
        chosen = {"current": _current(follower, now)}
        if now.stepping and not now.over:
            going = [step for step in follower.ahead if step.title in now.next_steps]
            chosen["next"] = next(iter([*going, *follower.ahead]), None)
        keys = {name: _key(step) for name, step in chosen.items()} | {"title": now.next, "over": now.over}
        clock = time.monotonic()
        soon = clock - self._changed < _SHOWN_S and not now.stepping and not now.over
        if keys == self._keys or soon:
            return
        self._keys, self._changed = keys, clock
        self.drawn = {name: _drawn(step, len(now.ranks), now) for name, step in chosen.items() if step is not None}
        if "next" in self.drawn and now.next_steps:
            self.drawn["next"]["title"] = now.next
        self.version += 1


def _current(follower: Follower, now: Now) -> Step | None:
    """A step that ranks wait in, or waited in to the end; else the last one that is over."""
    open_steps = [step for step in follower.steps if step.end is None]
    if now.over and open_steps:
        return open_steps[0]
    waiting = {rank.rank for rank in now.ranks if rank.waits_for and (rank.since_s or 0.0) >= _WAITED_S}
    stuck = [step for step in open_steps if waiting & step.calls.keys() and _is_open(step, waiting)]
    if stuck:
        return stuck[-1]
    over = [step for step in follower.steps if step.end is not None]
    return max(over, key=lambda step: step.end or 0.0, default=None) or (open_steps[-1] if open_steps else None)


def _is_open(step: Step, ranks: set[int]) -> bool:
    return any(step.calls[rank].state == "unfinished" for rank in ranks & step.calls.keys())


def _key(step: Step | None) -> object:
    """Tells whether a picture would be another one."""
    if step is None:
        return None
    return tuple(sorted((call.rank, call.index, call.state) for call in step.calls.values()))


def _drawn(step: Step, world_size: int, now: Now) -> dict[str, Any]:
    call = next(iter(step.calls.values()))
    picture = picture_of(step, world_size=world_size, live=not now.over)
    return {
        "title": clip(step.title, _LONGEST),
        "place": clip(call.source, _LONGEST),
        "svg": svg_of(picture, heading=False),
    }


def lines_of(follower: Follower) -> Sequence[dict[str, Any]]:
    """What ranks have printed lately."""
    return [
        {"n": line.number, "rank": line.rank, "stream": line.stream, "time": f"{line.time_s:.3f}", "text": line.text}
        for line in follower.lines
    ]


def page_of(title: str) -> bytes:
    """The page of a run that is called so until it says its name itself."""
    return bundle.render("watch", "watch", {}, title=title, colours={})


def report_of(path: Callable[[], Path | None]) -> Callable[[], bytes | None]:
    """Gives the report of the run with this record, once there is a result.

    It is written anew: a page that came with a record may run scripts of whoever made it.
    """
    lock, written = threading.Lock(), set[Path]()

    def report() -> bytes | None:
        folder = path()
        if folder is None or not Record(path=folder).complete:
            return None
        with lock:
            if folder not in written:
                write_report(Record(path=folder))
                written.add(folder)
            return read_file(folder, REPORT, _MOST_REPORT_BYTES)

    return report
