"""Where a moment of a run lies on a picture of limited width: time runs evenly, but nobody's pauses are cut short."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_CUT_WIDTH = 18.0
"""Pixels of a pause that was cut."""
_LONG = 0.08
"""A pause is long if it takes more than this part of the time in which something happens."""
_ABOUT = 8
"""Ticks on an axis."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of time in which something happens, and its place."""

    begin: float
    end: float
    left: float
    """Pixels."""
    right: float


@dataclass(frozen=True, slots=True)
class Axis:
    """From seconds to pixels."""

    pieces: tuple[Piece, ...]
    """Between them lie the pauses that were cut."""

    def place(self, time: float) -> float:
        """Pixels at a moment; moments before and after the run are at its ends, moments within a cut in its middle."""
        before = None
        for piece in self.pieces:
            if time < piece.begin:
                return piece.left if before is None else (before.right + piece.left) / 2
            if time <= piece.end:
                span = piece.end - piece.begin
                return piece.left + ((time - piece.begin) / span if span else 0.0) * (piece.right - piece.left)
            before = piece
        return self.pieces[-1].right

    def ticks(self) -> list[float]:
        """Round moments to write on the axis, in seconds, of which all lie in pieces."""
        total = sum(piece.end - piece.begin for piece in self.pieces)
        if total <= 0:
            return [self.pieces[0].begin]
        step = _round_up(total / _ABOUT)
        first_and_last = ((math.ceil(piece.begin / step), math.floor(piece.end / step)) for piece in self.pieces)
        return [number * step for first, last in first_and_last for number in range(first, last + 1)]


def make_axis(busy: Iterable[tuple[float, float]], left: float, right: float) -> Axis:
    """The axis of a run: the stretches of seconds in which something happened, put between two pixels."""
    stretches = _merge(busy, 0.0)
    if not stretches:
        return Axis((Piece(0.0, 0.0, left, right),))
    kept = _merge(stretches, _LONG * sum(end - begin for begin, end in stretches))
    total = sum(end - begin for begin, end in kept)
    width = right - left - _CUT_WIDTH * (len(kept) - 1)
    pieces, at = [], left
    for begin, end in kept:
        share = width * ((end - begin) / total if total else 1 / len(kept))
        pieces.append(Piece(begin, end, at, at + share))
        at += share + _CUT_WIDTH
    return Axis(tuple(pieces))


def _merge(stretches: Iterable[tuple[float, float]], pause: float) -> list[tuple[float, float]]:
    """Stretches put together where no longer pause lies between them."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(stretches):
        if merged and begin - merged[-1][1] <= pause:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _round_up(number: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50, ... times a power of ten."""
    power = 10.0 ** math.floor(math.log10(number))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= number)
