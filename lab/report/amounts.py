"""Bytes, seconds and bandwidths as a person reads them."""

from __future__ import annotations

_DECIMAL = ("", "k", "M", "G", "T")


def bytes_text(size: float) -> str:
    """`0`, `12 B`, `1.5 kB`: powers of 1000, as networks count."""
    return "0" if size == 0 else _scaled(size, "B")


def bandwidth_text(bytes_per_s: float | None) -> str:
    """`1.2 GB/s`; a dash where there is none."""
    return "–" if bytes_per_s is None else _scaled(bytes_per_s, "B/s")


def seconds_text(seconds: float | None) -> str:
    """`12 µs`, `3.40 ms`, `1.20 s`; a dash where there is none."""
    if seconds is None:
        return "–"
    if seconds == 0:
        return "0"
    size = abs(seconds)
    if size >= 1:
        return f"{seconds:.2f} s"
    if size >= 1e-3:
        return f"{seconds * 1e3:.2f} ms"
    return f"{seconds * 1e6:.1f} µs"


def _scaled(number: float, unit: str) -> str:
    step = 0
    while abs(number) >= 999.5 and step < len(_DECIMAL) - 1:
        number, step = number / 1000, step + 1
    digits = f"{number:.0f}" if number == int(number) or abs(number) >= 100 else f"{number:.3g}"
    return f"{digits} {_DECIMAL[step]}{unit}"
