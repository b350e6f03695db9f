"""A run's timeline as one still picture: lanes of ranks, a bar for each call, hatched while it waits for others.

Plain SVG without scripts or style sheets, so that it shows wherever HTML does; text and lines take the colour of the
text around it, and so suit light and dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from lab.features.html.timeline.axis import make_axis
from lab.features.html.timeline.layout import Bar, busy_times, make_rows, shown_marks
from lab.operations import operation
from lab.report.svg import element, escaped, title
from lab.trace.model import Mark, RankTrace, Trace
from lab.trace.notation import render_call
from lab.trace.steps import Step
from lab.words import format_bytes, format_duration, format_moment, name_ranks

_WIDTH = 900
_LEFT, _BAR, _MARK, _GAP, _AXIS = 64.0, 16.0, 11.0, 9.0, 24.0
_LETTER = 5.6
_LEAST_ERROR = 1.5
"""Pixels: where less is uncertain it cannot be seen."""


def timeline_svg(
    trace: Trace, steps: Sequence[Step], lanes: Sequence[Sequence[int]], *, until: float = 0.0, prefix: str
) -> str:
    """The timeline of a run; empty where no rank called anything.

    Args:
        trace: of the run.
        steps: its calls, put together.
        lanes: the ranks of each lane, of which the first is shown; see `lanes_of`.
        until: seconds until which ranks are known to have been alive; calls that never ended last as long.
        prefix: begins the names of what the picture defines, which are to be unique in a page.
    """
    drawn = _Timeline(trace, steps, lanes, max(trace.last, until), prefix)
    return drawn.draw() if any(rank.calls for rank in drawn.ranks) else ""


class _Timeline:
    def __init__(self, trace: Trace, steps: Sequence[Step], lanes: Sequence[Sequence[int]], last: float, prefix: str):
        self._trace = trace
        self._lanes = lanes
        self.ranks = ranks = [trace.ranks[lane[0]] for lane in lanes]
        """The first of each lane, which is drawn."""
        self._last = last
        self._several = trace.clocks.several
        self._axis = make_axis(busy_times(ranks, last), _LEFT, _WIDTH - 8.0)
        self._step_of = {(call.rank, call.index): step for step in steps for call in step.calls.values()}
        first = sorted((call.begin, call.op) for rank in ranks for call in rank.calls)
        self._colours = {op: operation(op).colour for _, op in first}
        """By operation, in the order of appearance."""
        self._hatchings = {op: f"{prefix}-{number}" for number, op in enumerate(self._colours)}
        self._waiting = f"{prefix}-w"
        self._parts: list[str] = []

    def draw(self) -> str:
        top = 2.0
        for rank, of in zip(self.ranks, self._lanes, strict=True):
            top = self._lane(rank, of[1:], top)
        self._draw_axis(top)
        height, ranks = top + _AXIS, sum(map(len, self._lanes))
        height = self._legend(height + 6)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" '
            f'height="{height:.0f}" role="img" aria-label="Timeline of {ranks} ranks" font-size="10" '
            f'font-family="system-ui, sans-serif" style="max-width:100%;height:auto">'
            f"{self._patterns()}{''.join(self._parts)}</svg>"
        )

    def _lane(self, rank: RankTrace, others: Sequence[int], top: float) -> float:
        """Draw what a rank did, and how many others did the same; returns where its lane ends."""
        rows = make_rows(rank, self._axis, self._last)
        end = top + _MARK + _BAR * max(1, len(rows)) + _GAP
        self._text(4, top + _MARK + 12, f"rank {rank.rank}", font_weight=600)
        error_s = self._trace.clocks.errors.get(rank.rank, 0.0) if self._several else 0.0
        if error_s:
            self._text(4, top + _MARK + 22, f"± {format_duration(error_s)}", font_size=8, opacity=".8")
        if others:
            told = f"and {len(others)} more"
            self._text(4, top + 8, told, title(f"and so {name_ranks(others)}"), font_size=8, opacity=".8")
        self._line(0, "100%", end - _GAP / 2, stroke_opacity=".15")
        for mark in shown_marks(rank):
            self._mark(mark, top)
        for number, row in enumerate(rows):
            for bar in row:
                self._bar(bar, top + _MARK + number * _BAR, error_s)
        return end

    def _mark(self, mark: Mark, top: float) -> None:
        if mark.end is None:
            return
        left, right = self._axis.place(mark.begin), self._axis.place(mark.end)
        told = f"{mark.name}{f' at {mark.source}' if mark.source else ''}: {format_duration(mark.end - mark.begin)}"
        where = {"x": left, "y": top, "width": max(right - left, 0.6), "height": _MARK - 2}
        self._parts.append(element("rect", title(told), **where, fill="currentColor", fill_opacity=".13"))
        if right - left > len(mark.name) * _LETTER:
            self._text(left + 2, top + 7.5, mark.name, font_size=8, opacity=".8")

    def _bar(self, bar: Bar, top: float, error_s: float) -> None:
        call, single = bar.calls[0], len(bar.calls) == 1
        step = self._step_of.get((call.rank, call.index))
        colour = self._colours[call.op]
        late = step.awaited(call) if single and step is not None else None
        waits_until = bar.left if late is None else min(max(self._axis.place(late.begin), bar.left), bar.right)

        def box(left: float, right: float, **look: object) -> str:
            return element("rect", x=left, width=right - left, y=top, height=_BAR - 3, **look)

        parts = [title(self._told(bar, step))]
        if waits_until > bar.left + 0.5:
            parts.append(box(bar.left, waits_until, fill=f"url(#{self._hatchings[call.op]})"))
        else:
            waits_until = bar.left
        parts.append(box(waits_until, bar.right, fill=colour, fill_opacity=".25" if call.end is None else ".85"))
        edge = colour if call.state == "completed" else "#d11"
        dashes = "3 2" if call.end is None else ""
        parts.append(box(bar.left, bar.right, rx=1, fill="none", stroke=edge, stroke_dasharray=dashes))
        if single and bar.right - bar.left > len(call.op) * _LETTER + 6:
            readable = {"fill": "#fff", "stroke": "#000", "stroke_opacity": ".55"}  # on every colour
            where = {"x": bar.left + 3, "y": top + 9.5, "stroke_width": 2, "paint_order": "stroke"}
            parts.append(element("text", escaped(call.op), **where, **readable))
        moments = (call.begin, bar.calls[-1].end) if error_s else ()
        parts += [self._may_be(time, error_s, top + (_BAR - 3) / 2) for time in moments if time is not None]
        self._parts.append(element("g", "".join(parts)))

    def _may_be(self, time: float, error_s: float, middle: float) -> str:
        """Where a moment may lie by the clocks of other hosts; nothing where that is not to be seen."""
        left, right = self._axis.place(time - error_s), self._axis.place(time + error_s)
        if right - left < _LEAST_ERROR:
            return ""
        ends = "".join(f"M{x:.1f} {middle - 3:.1f}v6" for x in (left, right))
        line = f"M{left:.1f} {middle:.1f}H{right:.1f}{ends}"
        return element("path", d=line, stroke="currentColor", fill="none", **{"class": "error"})

    def _told(self, bar: Bar, step: Step | None) -> str:
        call = bar.calls[0]
        if len(bar.calls) > 1:
            return f"{len(bar.calls)} calls, {call.op} to {bar.calls[-1].op}: {format_duration(bar.end - call.begin)}"
        took = "never ended" if call.end is None else format_duration(call.end - call.begin)
        place = f", at {call.source}" if call.source else ""
        lines = [render_call(call, self._trace.groups), f"{took}, {format_bytes(call.bytes)}{place}"]
        late = step.awaited(call) if step is not None else None
        if step is not None and step.missing:
            lines.append(f"{name_ranks(step.missing)} never came")
        elif late is not None:
            until = late.begin if call.end is None else min(late.begin, call.end)
            sure = f" (± {format_duration(step.apart_s)})" if step is not None and step.apart_s else ""
            lines.append(f"waited {format_duration(until - call.begin)}{sure} for rank {late.rank}")
        return "\n".join([*lines, call.error] if call.error else lines)

    def _draw_axis(self, top: float) -> None:
        pieces, ticks = self._axis.pieces, self._axis.ticks()
        for piece in pieces:
            self._line(piece.left, piece.right, top)
        for one, other in pairwise(pieces):
            pause = title(f"nothing for {format_duration(other.begin - one.end)}")
            self._text((one.right + other.left) / 2, top + 3, "⋯", pause, text_anchor="middle")
        last = -100.0
        distance = min((later - one for one, later in pairwise(ticks)), default=1.0)
        for tick in ticks:
            place = self._axis.place(tick)
            if place - last < 48:
                continue
            last = place
            self._line(place, place, top, top + 4)
            moment = format_moment(tick, distance)
            self._text(min(place, pieces[-1].right - 10), top + 15, moment, text_anchor="middle", opacity=".8")

    def _legend(self, top: float) -> float:
        """Draw what the colours mean; returns where it ends."""
        left = _LEFT
        looks = {op: {"fill": colour, "fill_opacity": ".85", "stroke": colour} for op, colour in self._colours.items()}
        looks["waits for others"] = {"fill": f"url(#{self._waiting})", "stroke": "currentColor"}
        for name, look in looks.items():
            room = 22 + len(name) * _LETTER
            if left + room > _WIDTH and left > _LEFT:
                left, top = _LEFT, top + 15
            self._parts.append(element("rect", x=left, y=top, width=10, height=10, **look))
            self._text(left + 14, top + 9, name)
            left += room
        return top + 16

    def _patterns(self) -> str:
        """The hatchings of the operations and of the legend."""
        colours = {self._hatchings[op]: colour for op, colour in self._colours.items()}
        colours[self._waiting] = "currentColor"
        return element("defs", "".join(_pattern(name, colour) for name, colour in colours.items()))

    def _line(self, left: float, right: float | str, top: float, bottom: float | None = None, **look: object) -> None:
        where = {"x1": left, "x2": right, "y1": top, "y2": top if bottom is None else bottom}
        self._parts.append(element("line", **where, stroke="currentColor", **look))

    def _text(self, left: float, base: float, words: str, inner: str = "", **look: object) -> None:
        self._parts.append(element("text", escaped(words) + inner, x=left, y=base, fill="currentColor", **look))


def _pattern(name: str, colour: str) -> str:
    return (
        f'<pattern id="{name}" width="5" height="5" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="5" height="5" fill="{colour}" fill-opacity=".12"/>'
        f'<line x1="0" x2="0" y1="0" y2="5" stroke="{colour}" stroke-width="2" stroke-opacity=".55"/></pattern>'
    )
