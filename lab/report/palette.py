"""One colour for each rank and each verdict, the same in every view."""

from __future__ import annotations

from typing import NamedTuple


class Tone(NamedTuple):
    """How a verdict looks."""

    sign: str
    terminal: str
    """Name of a terminal's colour."""
    colour: str
    """For light and for dark backgrounds."""
    variable: str
    """Name of the page's colour."""


VERDICTS = {
    "passed": Tone("✔", "green", "#2da44e", "good"),
    "failed": Tone("✘", "red", "#e5484d", "bad"),
    "hung": Tone("∞", "yellow", "#bf8700", "warn"),
    "error": Tone("!", "magenta", "#a371f7", "odd"),
}

RANK_COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#AA3377", "#56B4E9", "#999933",
    "#5B4FCF", "#EE6677", "#117733", "#88CCEE", "#B07AA1", "#76B7B2",
)  # fmt: skip
"""Chosen to differ for people with red-green blindness too, and to show on white as well as on black."""

_GOLDEN = 0.618034
"""Steps of this part of the colour circle never come close to each other soon."""
_LIGHTNESS = (0.42, 0.58, 0.68)


def rank_colour(rank: int, world_size: int) -> str:
    """The colour of a rank as `#rrggbb`.

    Up to twelve ranks have hand-picked colours; of more, neighbours still differ clearly, but colour alone does not
    tell all of them apart: a label has to.
    """
    if world_size <= len(RANK_COLOURS):
        return RANK_COLOURS[rank % len(RANK_COLOURS)]
    import colorsys  # not on the way of `lab run`

    lightness = _LIGHTNESS[rank % len(_LIGHTNESS)]
    red, green, blue = colorsys.hls_to_rgb((0.56 + rank * _GOLDEN) % 1.0, lightness, 0.65)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
