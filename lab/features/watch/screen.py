"""A run in a terminal, redrawn in its place, or in a pipe, a line for everything that happens."""

from __future__ import annotations

import json
import shutil
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import IO

from lab.features.watch.now import Follower, Happening, Now, RankNow, alike_ranks
from lab.report.harmless import harmless
from lab.report.style import Style, style_for
from lab.report.table import MANY, alike
from lab.words import clip, format_duration, name_nodes, name_ranks


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


_ERASE_BELOW = "\x1b[J"
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_ROOMY = 72
"""Columns from which on there is room for the names of nodes."""
Part = tuple[str, tuple[str, ...]]


def now_lines(now: Now, style: Style, height: int) -> list[str]:
    """A run at one moment in at most so many lines, none wider than the terminal."""
    width = style.width or 1_000
    elapsed = "" if now.elapsed_s is None else f"  {format_duration(round(now.elapsed_s, 1))}"
    head: list[Part] = [(now.scenario, ("bold",)), (elapsed, ()), (f"  {now.engine}", ("dim",))]
    lines = [_fitted(head, width, style)]
    room = max(1, height - 1 - len(now.remarks) - now.stepping)
    groups = [[rank] for rank in now.ranks] if len(now.ranks) <= min(room, MANY) else alike_ranks(now.ranks)
    shown = groups if len(groups) <= room else groups[: room - 1]
    named = [(f"{name_ranks(r.rank for r in ours):<8}", name_nodes(r.node for r in ours)) for ours in shown]
    names = max((len(nodes) for _, nodes in named), default=0) if width >= _ROOMY else 0
    for ours, (who, nodes) in zip(shown, named, strict=True):
        lines.append(
            _fitted(_rank_parts(ours, who, f" {nodes:<{names}} " if names else ""), width, style, ours[0].rank)
        )
    if len(shown) < len(groups):
        left = [rank for ours in groups[len(shown) :] for rank in ours]
        lines.append(_fitted([(f"… and {_many(left)}", ("dim",))], width, style))
    lines += [_fitted([(remark, ("yellow",))], width, style) for remark in now.remarks]
    if now.stepping and not now.over:
        keys = f"space: {now.next}   c: run on" if now.next else "nobody is held   c: run on"
        lines.append(_fitted([(keys, ("cyan", "bold") if now.next else ("dim",))], width, style))
    return lines[:height]


def _rank_parts(ranks: Sequence[RankNow], who: str, nodes: str) -> list[Part]:
    rank = ranks[0]
    told = ("red",) if rank.bad else ("dim",) if rank.state in ("ended", "starting", "outside") else ()
    parts: list[Part] = [(who, ("rank",)), (nodes, ("dim",)), (rank.told, told)]
    longest_s = max((one.since_s for one in ranks if one.since_s is not None), default=0.0)
    if longest_s >= 0.1:
        parts.append((f"  {format_duration(round(longest_s, 1))}", ()))
    if rank.waits_for:
        parts.append((f"  waits for {name_ranks(rank.waits_for)}", ("yellow",)))
    if rank.place:
        parts.append((f"  {rank.place}", ("dim",)))
    return parts


def _many(ranks: Sequence[RankNow]) -> str:
    states: dict[str, int] = {}
    for rank in ranks:
        states[rank.told] = states.get(rank.told, 0) + 1
    return f"{len(ranks)} more: " + ", ".join(f"{count} {told}" for told, count in states.items())


def _fitted(parts: Iterable[Part], width: int, style: Style, rank: int = 0) -> str:
    """Parts one after the other, cut off where the line ends."""
    found = []
    left = width - 1
    for text, styles in parts:
        cut = clip(harmless(text).replace("\n", " ").replace("\t", " "), left) if left > 0 else ""
        left -= len(cut)
        if cut:
            found.append(style.rank(rank, cut) if styles == ("rank",) else style.paint(cut, *styles))
    return "".join(found)


class Screen:
    """Shows a run on a terminal."""

    presses = False

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._drawn = 0
        """Lines that are below what has scrolled by."""

    def show(self, now: Now, follower: Follower) -> None:
        """Draw it anew."""
        style = style_for(self._stream)
        printed = _printed([one for one in follower.happened if _stays(one)], now, style)
        block = [] if now.over else now_lines(now, style, shutil.get_terminal_size().lines - 1)
        text = "".join(f"{line}\n" for line in block)
        self._stream.write(
            f"{_HIDE}{self._up()}{''.join(f'{line}{chr(10)}' for line in printed)}{_NO_WRAP}{text}{_WRAP}"
            f"{_SHOW if now.over else ''}"
        )
        self._stream.flush()
        self._drawn = len(block)

    def close(self) -> None:
        """Leave the terminal as it was, without the lines of the ranks."""
        self._stream.write(f"{self._up()}{_WRAP}{_SHOW}")
        self._stream.flush()
        self._drawn = 0

    def _up(self) -> str:
        return f"\r\x1b[{self._drawn}A{_ERASE_BELOW}" if self._drawn else ""


def _stays(happening: Happening) -> bool:
    """Whether it stays in the terminal: what ranks print and note, and how they end."""
    if happening.what == "exited":
        return happening.facts.get("code") != 0
    return happening.what in ("output", "note", "node", "attempt", "timed out")


def _printed(happened: Sequence[Happening], now: Now, style: Style) -> list[str]:
    """A line for each of what happened; where it happened to many ranks, one for all to whom the same did."""
    kinds = alike((at, (one.rank is None, one.what, one.text)) for at, one in enumerate(happened))
    many = len({one.rank for one in happened}) > MANY
    places = [same for same, _ in kinds] if many else [[at] for at in range(len(happened))]
    nodes, lines = {one.rank: one.node for one in now.ranks}, []
    for first, *others in places:
        one = happened[first]
        ranks = {happened[at].rank for at in (first, *others)} - {None}
        name = "lab |" if one.rank is None else f"{nodes.get(one.rank, '')}/rank{one.rank} |"
        name = "check |" if one.rank is not None and one.rank < 0 else name
        name = f"{name_ranks(rank for rank in ranks if rank is not None)} |" if len(ranks) > 1 else name
        text = harmless(one.text, output=True)
        told = text if one.what == "output" else style.paint(text, "dim")
        lines.append(f"{style.rank(max(one.rank or 0, 0), name)} {told}")
    return lines
