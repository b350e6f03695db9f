"""A run's timeline as one still picture: a lane for each rank, a bar for each call, hatched while it waits for others.

Plain SVG without scripts or style sheets, so that it shows wherever HTML does; text and lines take the colour of the
text around it, and so suit light and dark pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

from lab.operations import operation
from lab.report.timeline.axis import Axis, make_axis
from lab.report.timeline.layout import Bar, Lane, busy_times, make_rows, shown_marks
from lab.trace.model import Mark, RankTrace, Trace
from lab.trace.notation import render_call
from lab.trace.steps import Step
from lab.words import format_bytes, format_duration, format_moment, name_ranks

MOST_RANKS = 24
"""Lanes that are drawn."""
_LEFT, _BAR, _MARK, _GAP, _AXIS = 64.0, 16.0, 11.0, 9.0, 24.0
_LETTER = 5.6


def timeline_svg(
    trace: Trace, steps: Sequence[Step], *, until: float = 0.0, width: int = 900, prefix: str = "lab"
) -> str:
    """The timeline of a run; empty where no rank called anything.

    Args:
        trace: of the run.
        steps: its calls, put together.
        until: seconds until which ranks are known to have been alive; calls that never ended last as long.
        width: pixels.
        prefix: begins the names of what the picture defines, which are to be unique in a page.
    """
    ranks = [trace.ranks[rank] for rank in sorted(trace.ranks)][:MOST_RANKS]
    if not any(rank.calls for rank in ranks):
        return ""
    last = max(trace.last, until)
    axis = make_axis(busy_times(ranks, last), _LEFT, width - 8.0)
    step_of = {(call.rank, call.index): step for step in steps for call in step.calls.values()}
    colours = _colours(ranks)
    parts: list[str] = []
    top = 2.0
    for lane in (Lane(rank, make_rows(rank, axis, last)) for rank in ranks):
        parts += _lane(lane, axis, top, trace, step_of, colours, prefix)
        top += _height(lane)
    parts += _axis(axis, top)
    height = top + _AXIS
    if len(trace.ranks) > len(ranks):
        parts.append(_text(_LEFT, height + 8, f"and {len(trace.ranks) - len(ranks)} more ranks"))
        height += 16
    legend, height = _legend(colours, height + 6, width, prefix)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" width="{width}" '
        f'height="{height:.0f}" role="img" aria-label="Timeline of {len(ranks)} ranks" font-size="10" '
        f'font-family="system-ui, sans-serif" style="max-width:100%;height:auto">'
        f"{_hatching(colours, prefix)}{''.join(parts)}{legend}</svg>"
    )


def _colours(ranks: Sequence[RankTrace]) -> dict[str, str]:
    """Operation -> colour, in the order of appearance."""
    first = sorted((call.begin, call.op) for rank in ranks for call in rank.calls)
    return {op: operation(op).colour for _, op in first}


def _height(lane: Lane) -> float:
    return _MARK + _BAR * max(1, len(lane.rows)) + _GAP


def _lane(
    lane: Lane,
    axis: Axis,
    top: float,
    trace: Trace,
    step_of: Mapping[tuple[int, int], Step],
    colours: Mapping[str, str],
    prefix: str,
) -> list[str]:
    bottom = top + _height(lane) - _GAP / 2
    parts = [_text(4, top + _MARK + 12, f"rank {lane.rank.rank}", "font-weight='600'")]
    parts.append(
        f'<line x1="0" x2="100%" y1="{bottom:.1f}" y2="{bottom:.1f}" stroke="currentColor" stroke-opacity=".15"/>'
    )
    parts += [_mark(mark, axis, top) for mark in shown_marks(lane.rank) if mark.end is not None]
    for number, row in enumerate(lane.rows):
        for bar in row:
            step = step_of.get((bar.calls[0].rank, bar.calls[0].index))
            parts.append(_bar(bar, axis, top + _MARK + number * _BAR, trace, step, colours, prefix))
    return parts


def _mark(mark: Mark, axis: Axis, top: float) -> str:
    left, right = axis.place(mark.begin), axis.place(mark.end or mark.begin)
    title = f"{mark.name}{f' at {mark.source}' if mark.source else ''}: {format_duration((mark.end or 0) - mark.begin)}"
    box = (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(right - left, 0.6):.1f}" height="{_MARK - 2}" '
        f'fill="currentColor" fill-opacity=".13"><title>{escape(title)}</title></rect>'
    )
    fits = right - left > len(mark.name) * _LETTER
    return box + (_text(left + 2, top + 7.5, mark.name, "font-size='8' opacity='.8'") if fits else "")


def _bar(
    bar: Bar, axis: Axis, top: float, trace: Trace, step: Step | None, colours: Mapping[str, str], prefix: str
) -> str:
    call, single = bar.calls[0], len(bar.calls) == 1
    colour = colours[call.op]
    never = call.end is None
    late = step.awaited(call) if single and step is not None else None
    waits_until = bar.left if late is None else min(max(axis.place(late.begin), bar.left), bar.right)
    edge = {"failed": "#d11", "unfinished": "#d11"}.get(call.state, colour)
    dashes = ' stroke-dasharray="3 2"' if never else ""
    box = f'y="{top:.1f}" height="{_BAR - 3}"'
    parts = [f"<g><title>{escape(_title(bar, trace, step))}</title>"]
    outline = f'rx="1" fill="none" stroke="{edge}"{dashes}'
    body = f'fill="{colour}" fill-opacity="{".25" if never else ".85"}"'
    if waits_until > bar.left + 0.5:
        hatching = f'fill="url(#{prefix}-{list(colours).index(call.op)})"'
        parts += [_box(bar.left, waits_until, box, hatching), _box(waits_until, bar.right, box, body)]
    else:
        parts.append(_box(bar.left, bar.right, box, body))
    parts.append(_box(bar.left, bar.right, box, outline))
    if single and bar.right - bar.left > len(call.op) * _LETTER + 6:
        parts.append(_label(bar.left + 3, top + 9.5, call.op))
    return "".join(parts) + "</g>"


def _box(left: float, right: float, place: str, paint: str) -> str:
    return f'<rect x="{left:.1f}" width="{right - left:.1f}" {place} {paint}/>'


def _title(bar: Bar, trace: Trace, step: Step | None) -> str:
    call = bar.calls[0]
    if len(bar.calls) > 1:
        return f"{len(bar.calls)} calls, {call.op} to {bar.calls[-1].op}: {format_duration(bar.end - bar.begin)}"
    lines = [render_call(call, trace.groups)]
    took = "never ended" if call.end is None else format_duration(call.end - call.begin)
    lines.append(f"{took}, {format_bytes(call.bytes)}{f', at {call.source}' if call.source else ''}")
    late = step.awaited(call) if step is not None else None
    if step is not None and step.missing:
        lines.append(f"{name_ranks(step.missing)} never came")
    elif late is not None:
        until = late.begin if call.end is None else min(late.begin, call.end)
        lines.append(f"waited {format_duration(until - call.begin)} for rank {late.rank}")
    if call.error:
        lines.append(call.error)
    return "\n".join(lines)


def _axis(axis: Axis, top: float) -> list[str]:
    y = f'y1="{top:.1f}" y2="{top:.1f}" stroke="currentColor"'
    parts = [f'<line x1="{piece.left:.1f}" x2="{piece.right:.1f}" {y}/>' for piece in axis.pieces]
    for one, other in pairwise(axis.pieces):
        middle = (one.right + other.left) / 2
        pause = f"nothing for {format_duration(other.begin - one.end)}"
        parts.append(_text(middle, top + 3, f"⋯<title>{pause}</title>", "text-anchor='middle'", raw=True))
    last, ticks = -100.0, axis.ticks()
    distance = min((later - one for one, later in pairwise(ticks)), default=1.0)
    for tick in ticks:
        place = axis.place(tick)
        if place - last < 48:
            continue
        last = place
        parts.append(
            f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{top:.1f}" y2="{top + 4:.1f}" stroke="currentColor"/>'
        )
        parts.append(
            _text(
                min(place, axis.pieces[-1].right - 10),
                top + 15,
                format_moment(tick, distance),
                "text-anchor='middle' opacity='.8'",
            )
        )
    return parts


def _legend(colours: Mapping[str, str], top: float, width: int, prefix: str) -> tuple[str, float]:
    parts, left = [], _LEFT
    entries = [(op, f'fill="{colour}" fill-opacity=".85" stroke="{colour}"') for op, colour in colours.items()]
    entries.append(("waits for others", f'fill="url(#{prefix}-w)" stroke="currentColor"'))
    for name, paint in entries:
        room = 22 + len(name) * _LETTER
        if left + room > width and left > _LEFT:
            left, top = _LEFT, top + 15
        parts.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="10" height="10" {paint}/>')
        parts.append(_text(left + 14, top + 9, name))
        left += room
    return "".join(parts), top + 16


def _hatching(colours: Mapping[str, str], prefix: str) -> str:
    entries = [*enumerate(colours.values()), ("w", "currentColor")]
    patterns = [
        f'<pattern id="{prefix}-{name}" width="5" height="5" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="5" height="5" fill="{colour}" fill-opacity=".12"/>'
        f'<line x1="0" x2="0" y1="0" y2="5" stroke="{colour}" stroke-width="2" stroke-opacity=".55"/></pattern>'
        for name, colour in entries
    ]
    return f"<defs>{''.join(patterns)}</defs>"


def _label(left: float, base: float, text: str) -> str:
    """Text on a bar, readable on every colour."""
    return (
        f'<text x="{left:.1f}" y="{base:.1f}" fill="#fff" stroke="#000" stroke-opacity=".55" stroke-width="2" '
        f'paint-order="stroke">{escape(text)}</text>'
    )


def _text(left: float, base: float, text: str, more: str = "", *, raw: bool = False) -> str:
    return f'<text x="{left:.1f}" y="{base:.1f}" fill="currentColor" {more}>{text if raw else escape(text)}</text>'
