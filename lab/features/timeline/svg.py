"""Shapes of SVG: text, boxes, lines with a head. Coordinates are user units, y grows downwards."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

from lab.report.harmless import harmless

GOOD = "var(--good,#2a8a4a)"
BAD = "var(--bad,#d1343c)"
WARN = "var(--warn,#a86a0c)"
SOFT = "var(--soft,#7a818b)"
_CHARACTER = 0.54
"""Width of a letter of a proportional font, as a part of its size."""


@dataclass(slots=True)
class Shapes:
    """What has been drawn so far."""

    parts: list[str] = field(default_factory=list)
    right: float = 0.0
    """The right edge of all of it."""

    def add(self, markup: str, right: float = 0.0) -> None:
        """One more."""
        self.parts.append(markup)
        self.right = max(self.right, right)


def element(name: str, inner: str = "", /, **attributes: object) -> str:
    """One element; underscores in names of attributes stand for hyphens, and empty ones are left out."""
    told = {key.replace("_", "-"): value for key, value in attributes.items() if value != ""}
    texts = {key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in told.items()}
    head = "".join([name, *(f" {key}={quoteattr(harmless(text, colours=False))}" for key, text in texts.items())])
    return f"<{head}>{inner}</{name}>" if inner else f"<{head}/>"


def escaped(words: str) -> str:
    """Text of scripts between two tags: neither markup nor a character that acts."""
    return escape(harmless(words, colours=False))


def title(words: str) -> str:
    """What is told where a pointer rests on the element that it is the first child of."""
    return element("title", escaped(words))


def text(shapes: Shapes, x: float, y: float, words: str, *, size: float = 13, colour: str = "", **more: str) -> None:
    """Words on a base line; `more` are attributes of SVG."""
    if not words:
        return
    width = len(words) * size * (0.602 if "font_family" in more else _CHARACTER + 0.04 * bool(more.get("font_weight")))
    style = f"fill:{colour}" if colour else ""
    markup = element("text", escaped(words), x=x, y=y, font_size=size, **more, style=style)
    shapes.add(markup, x + (width / 2 if "text_anchor" in more else width))


def rectangle(
    shapes: Shapes, x: float, y: float, width: float, height: float, fill: str, *, stroke: str = "", **more: object
) -> None:
    """A box; `fill` may be `none`, and `more` are attributes of SVG."""
    edge = {"style": f"stroke:{stroke}", "stroke_width": 1.25} if stroke else {}
    shapes.add(element("rect", x=x, y=y, width=width, height=height, rx=2, fill=fill, **edge | more), x + width)


def line(shapes: Shapes, x1: float, y1: float, x2: float, y2: float, colour: str, width: float) -> None:
    """A bent line from left to right with a head at its end."""
    end, bend = x2 - 6, (x2 - x1) * 0.5
    curve = f"M{x1:g} {y1:g}C{x1 + bend:g} {y1:g} {end - bend:g} {y2:g} {end:g} {y2:g}"
    shapes.add(element("path", d=curve, fill="none", stroke=colour, stroke_width=width))
    shapes.add(element("path", d=f"M{x2:g} {y2:g}l-7 -3.2v6.4z", fill=colour))


class LogScale:
    """From a quantity to pixels, by its logarithm."""

    def __init__(self, low: float, high: float, begin: float, end: float) -> None:
        self._low, self._high = math.log10(low), math.log10(high)
        self._begin, self._end = begin, end

    def place(self, value: float) -> float:
        """Pixels."""
        span = self._high - self._low
        part = (math.log10(value) - self._low) / span if span else 0.5
        return self._begin + part * (self._end - self._begin)

    def ticks(self) -> list[float]:
        """Powers of ten within, and both ends where there is none."""
        powers = [10.0**power for power in range(math.ceil(self._low), math.floor(self._high) + 1)]
        return powers or [10.0**self._low, 10.0**self._high]
