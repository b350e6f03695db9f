"""Shapes of SVG: text, boxes, lines with a head. Coordinates are user units, y grows downwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

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

    @property
    def markup(self) -> str:
        """All of it."""
        return "".join(self.parts)

    def add(self, markup: str, right: float = 0.0) -> None:
        """One more."""
        self.parts.append(markup)
        self.right = max(self.right, right)


def text(
    shapes: Shapes,
    x: float,
    y: float,
    words: str,
    *,
    size: float = 13,
    colour: str = "",
    weight: str = "",
    family: str = "",
    anchor: str = "",
) -> None:
    """Words on a base line."""
    if not words:
        return
    style = f' style="fill:{colour}"' if colour else ""
    more = f' font-weight="{weight}"' if weight else ""
    more += f" font-family={quoteattr(family)}" if family else ""
    more += f' text-anchor="{anchor}"' if anchor else ""
    width = len(words) * size * (0.602 if family else _CHARACTER + (0.04 if weight else 0))
    right = x + (width / 2 if anchor == "middle" else width)
    shapes.add(f'<text x="{x:g}" y="{y:g}" font-size="{size:g}"{more}{style}>{escape(words)}</text>', right)


def rectangle(
    shapes: Shapes,
    x: float,
    y: float,
    width: float,
    height: float,
    fill: str,
    *,
    opacity: float = 1.0,
    stroke: str = "",
    dashed: bool = False,
    stroke_width: float = 1.25,
) -> None:
    """A box; `fill` may be `none`."""
    edge = f' stroke="{stroke}" stroke-width="{stroke_width:g}"' if stroke.startswith("#") else ""
    edge = f' style="stroke:{stroke}" stroke-width="{stroke_width:g}"' if stroke and not edge else edge
    edge += ' stroke-dasharray="4 3"' if dashed else ""
    faint = f' fill-opacity="{opacity:g}"' if opacity < 1 else ""
    shapes.add(
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2" fill="{fill}"{faint}{edge}/>',
        x + width,
    )


def line(shapes: Shapes, x1: float, y1: float, x2: float, y2: float, colour: str, width: float) -> None:
    """A bent line from left to right with a head at its end."""
    end, bend = x2 - 6, (x2 - x1) * 0.5
    shapes.add(
        f'<path d="M{x1:g} {y1:g}C{x1 + bend:g} {y1:g} {end - bend:g} {y2:g} {end:g} {y2:g}" '
        f'fill="none" stroke="{colour}" stroke-width="{width:g}"/>'
        f'<path d="M{x2:g} {y2:g}l-7 -3.2v6.4z" fill="{colour}"/>'
    )
