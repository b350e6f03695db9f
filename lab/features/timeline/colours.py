"""One colour for each rank and each operation, the same in every view."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.operations import Operation


RANK_COLOURS = (
    "#436bec", "#a15601", "#327758", "#e9509b", "#2f94ce", "#a78a0f",
    "#8451bd", "#cf2a59", "#76985f", "#3d968e", "#b149a2", "#bb703b",
)  # fmt: skip
"""Neither light nor dark, so that they show on white as well as on black; chosen by computation to differ for people
who are blind to some colours too, above all the first six."""

_OPERATION_TONES = {
    "#8560b8": ("#662286", "#cdc0f5"), "#ae8fd6": ("#583798", "#efc8fe"), "#4474b0": ("#45597b", "#89b4fd"),
    "#7ba3d4": ("#171979", "#96b3d6"), "#d9822b": ("#471d05", "#dab492"), "#e6a960": ("#653102", "#f3c397"),
    "#2b8c87": ("#003024", "#68e3c5"), "#c2518f": ("#773e5a", "#ef93b1"), "#838a94": ("#32383d", "#dee6ec"),
    "#5a9a4a": ("#065a35", "#96fd73"), "#8dbe77": ("#144b29", "#aae658"),
}  # fmt: skip
"""Of an operation's colour one for light pages, darker than any rank's, and one for dark pages, lighter than any."""

_GOLDEN = 0.618034
"""Steps of this part of the colour circle never come close to each other soon."""
_LUMINANCES = (0.16, 0.22, 0.28)
"""Of ranks that have no colour of their own: enough contrast to white and to black."""


def operation_tones(operation: Operation) -> str:
    """The colour of an operation on a page, light or dark, as CSS; it is never close to that of a rank."""
    tones = _OPERATION_TONES.get(operation.colour)
    return operation.colour if tones is None else f"light-dark({', '.join(tones)})"


def luminance(colour: str) -> float:
    """How light a colour `#rrggbb` is, from 0 to 1, as WCAG defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@lru_cache(maxsize=4096)
def rank_colour(rank: int, world_size: int) -> str:
    """The colour of a rank as `#rrggbb`.

    Up to twelve ranks have hand-picked colours; of more, neighbours still differ clearly, but colour alone does not
    tell all of them apart: a label has to.
    """
    if world_size <= len(RANK_COLOURS):
        return RANK_COLOURS[rank % len(RANK_COLOURS)]
    import colorsys  # not on the way of `lab run`

    def of(lightness: float) -> str:
        parts = colorsys.hls_to_rgb((0.56 + rank * _GOLDEN) % 1.0, lightness, 0.65)
        return f"#{''.join(f'{round(part * 255):02x}' for part in parts)}"

    wanted, least, most = _LUMINANCES[rank % len(_LUMINANCES)], 0.0, 1.0
    for _ in range(12):
        middle = (least + most) / 2
        least, most = (middle, most) if luminance(of(middle)) < wanted else (least, middle)
    return of(most)
