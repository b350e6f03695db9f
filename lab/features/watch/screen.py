"""A run in a terminal: what ranks print scrolls by, and below it a line for each rank is redrawn in its place."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from typing import IO

from lab.features.watch.follow import Follower, Happening
from lab.features.watch.now import Now, RankNow, alike_ranks
from lab.report.harmless import harmless
from lab.report.style import Style, style_for
from lab.report.table import MANY, alike
from lab.words import clip, format_duration, name_nodes, name_ranks

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
