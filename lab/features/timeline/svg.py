"""Lanes of a timeline, SVG shapes, and one color for each rank and operation: the same in all views."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from xml.sax.saxutils import escape, quoteattr

from lab.diagnosis.finding import Finding
from lab.operations import Operation
from lab.record.result import Result
from lab.report.sanitize import sanitize_text
from lab.report.style import MANY, group_equal, group_neighbours
from lab.trace.model import Call, Trace

MOST_ROWS = 6
"""Limit for a lane in a picture; calls that overlap even more share the last row."""


_FEW = 4
"""A sentence that names at most this many ranks is about ranks that stand out."""


def lanes_of(
    ranks: Sequence[int], traces: Sequence[Trace], results: Sequence[Result], findings: Sequence[Finding] = ()
) -> list[list[int]]:
    """Return the ranks of each lane: one per rank; of many ranks, those with the same calls and end share one.

    Args:
        ranks: All ranks to show, in order.
        traces: The trace of the run, or the traces of the runs to compare.
        results: The results of the same runs. A culprit keeps its own lane.
        findings: The findings about the run; the ranks of a finding keep their own lanes if they are few.

    Returns:
        Lanes in the order of their first ranks, at most twice `MANY`. If hardly any two ranks are alike, consecutive
        ranks share a lane.
    """
    if len(ranks) <= MANY:
        return [[rank] for rank in ranks]
    named = [result.culprit.rank for result in results if result.culprit is not None]
    named += [rank for finding in findings if len(finding.ranks) <= _FEW for rank in finding.ranks]
    separate = [rank for rank in dict.fromkeys(named) if rank is not None and rank in ranks][:MANY]
    others = [rank for rank in ranks if rank not in separate]
    ends = [{rank.rank: rank.ended for rank in result.ranks} for result in results]
    histories = (
        (rank, (*(end.get(rank) for end in ends), *(_call_history(trace, rank) for trace in traces))) for rank in others
    )
    groups = [numbers for numbers, _ in group_equal(histories)]
    if len(groups) > MANY:
        groups = [list(block) for block in group_neighbours(others)]
    return sorted(groups + [[rank] for rank in separate])


def _call_history(trace: Trace, rank: int) -> tuple[tuple[str, str, str], ...]:
    """Return what a rank called, where, and how each call ended."""
    rank_trace = trace.ranks.get(rank)
    return tuple((call.op, call.source, call.state) for call in rank_trace.calls) if rank_trace is not None else ()


def rows_of(calls: Sequence[Call]) -> list[int]:
    """Return the row of each call, from 0; a call that never ended occupies its row until the end."""
    return lay_rows(((call.begin, math.inf if call.end is None else call.end) for call in calls), MOST_ROWS)


def lay_rows(spans: Iterable[tuple[float, float]], limit: float = math.inf) -> list[int]:
    """Return the row of each span: the first one that is free.

    Args:
        spans: Beginning and end of each, in the order in which they begin.
        limit: The maximum number of rows.
    """
    free: list[float] = []
    rows = []
    for begin, end in spans:
        row = next((row for row, until in enumerate(free) if until <= begin), len(free))
        if row == len(free) < limit:
            free.append(end)
        row = min(row, len(free) - 1)
        free[row] = max(free[row], end)
        rows.append(row)
    return rows


GOOD = "var(--good,#2a8a4a)"
BAD = "var(--bad,#d1343c)"
WARN = "var(--warn,#a86a0c)"
SOFT = "var(--soft,#7a818b)"
_CHARACTER = 0.54
"""Width of a character of a proportional font, relative to its size."""


@dataclass(slots=True)
class Shapes:
    """The shapes that were drawn so far."""

    parts: list[str] = field(default_factory=list)
    right: float = 0.0
    """The right edge of all shapes."""

    def add(self, markup: str, right: float = 0.0) -> None:
        """Add a shape."""
        self.parts.append(markup)
        self.right = max(self.right, right)


def render_element(name: str, inner: str = "", /, **attributes: object) -> str:
    """Render an element; underscores in attribute names become hyphens, and empty attributes are left out."""
    named = {key.replace("_", "-"): value for key, value in attributes.items() if value != ""}
    texts = {key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in named.items()}
    head = "".join([name, *(f" {key}={quoteattr(sanitize_text(text, colours=False))}" for key, text in texts.items())])
    return f"<{head}>{inner}</{name}>" if inner else f"<{head}/>"


def escape_text(words: str) -> str:
    """Escape text of scripts between two tags, so that it is neither markup nor a control character."""
    return escape(sanitize_text(words, colours=False))


def render_tooltip(words: str) -> str:
    """Render the tooltip of the element that this is the first child of."""
    return render_element("title", escape_text(words))


def draw_text(
    shapes: Shapes, x: float, y: float, words: str, *, size: float = 13, colour: str = "", **attrs: str
) -> None:
    """Draw text on a base line; `attrs` are SVG attributes."""
    if not words:
        return
    share = 0.602 if "font_family" in attrs else _CHARACTER + 0.04 * bool(attrs.get("font_weight"))
    width = len(words) * size * share
    style = f"fill:{colour}" if colour else ""
    markup = render_element("text", escape_text(words), x=x, y=y, font_size=size, **attrs, style=style)
    shapes.add(markup, x + (width / 2 if "text_anchor" in attrs else width))


def draw_rectangle(
    shapes: Shapes, x: float, y: float, width: float, height: float, fill: str, *, stroke: str = "", **attrs: object
) -> None:
    """Draw a box; `fill` may be `none`, and `attrs` are SVG attributes."""
    edge = {"style": f"stroke:{stroke}", "stroke_width": 1.25} if stroke else {}
    shapes.add(render_element("rect", x=x, y=y, width=width, height=height, rx=2, fill=fill, **edge | attrs), x + width)


def draw_line(shapes: Shapes, x1: float, y1: float, x2: float, y2: float, colour: str, width: float) -> None:
    """Draw a curved arrow from left to right."""
    end, bend = x2 - 6, (x2 - x1) * 0.5
    curve = f"M{x1:g} {y1:g}C{x1 + bend:g} {y1:g} {end - bend:g} {y2:g} {end:g} {y2:g}"
    shapes.add(render_element("path", d=curve, fill="none", stroke=colour, stroke_width=width))
    shapes.add(render_element("path", d=f"M{x2:g} {y2:g}l-7 -3.2v6.4z", fill=colour))


RANK_COLOURS = (
    "#436bec", "#a15601", "#327758", "#e9509b", "#2f94ce", "#a78a0f",
    "#8451bd", "#cf2a59", "#76985f", "#3d968e", "#b149a2", "#bb703b",
)  # fmt: skip
"""Neither light nor dark, so that they are visible on white and on black. A program chose them to differ for people
with color blindness too, above all the first six.
"""

_OPERATION_TONES = {
    "#8560b8": ("#662286", "#cdc0f5"), "#ae8fd6": ("#583798", "#efc8fe"), "#4474b0": ("#45597b", "#89b4fd"),
    "#7ba3d4": ("#171979", "#96b3d6"), "#d9822b": ("#471d05", "#dab492"), "#e6a960": ("#653102", "#f3c397"),
    "#2b8c87": ("#003024", "#68e3c5"), "#c2518f": ("#773e5a", "#ef93b1"), "#838a94": ("#32383d", "#dee6ec"),
    "#5a9a4a": ("#065a35", "#96fd73"), "#8dbe77": ("#144b29", "#aae658"),
}  # fmt: skip
"""For the color of an operation, one for light pages, darker than any rank's, and one for dark pages, lighter than any.
"""

_GOLDEN = 0.618034
"""Steps of this share of the color circle stay far from each other for long."""
_LUMINANCES = (0.16, 0.22, 0.28)
"""For ranks without a hand-picked color: enough contrast to white and to black."""


def operation_tones(operation: Operation) -> str:
    """Return the color of an operation for light and dark pages, as CSS; it is never close to that of a rank."""
    tones = _OPERATION_TONES.get(operation.colour)
    return operation.colour if tones is None else f"light-dark({', '.join(tones)})"


def compute_luminance(colour: str) -> float:
    """Return the luminance of a color `#rrggbb`, from 0 to 1, as WCAG defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@lru_cache(maxsize=4096)
def rank_colour(rank: int, world_size: int) -> str:
    """Return the color of a rank as `#rrggbb`.

    Up to twelve ranks have hand-picked colors. With more ranks, neighbours still differ clearly, but color alone does
    not identify a rank: it needs a label.
    """
    if world_size <= len(RANK_COLOURS):
        return RANK_COLOURS[rank % len(RANK_COLOURS)]
    import colorsys  # `lab run` does not need it

    def with_lightness(lightness: float) -> str:
        parts = colorsys.hls_to_rgb((0.56 + rank * _GOLDEN) % 1.0, lightness, 0.65)
        return f"#{''.join(f'{round(part * 255):02x}' for part in parts)}"

    target, low, high = _LUMINANCES[rank % len(_LUMINANCES)], 0.0, 1.0
    for _ in range(12):
        mid = (low + high) / 2
        low, high = (mid, high) if compute_luminance(with_lightness(mid)) < target else (low, mid)
    return with_lightness(high)
