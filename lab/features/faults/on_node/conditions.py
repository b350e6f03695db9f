"""What conditions of links are, and what several of them at once come to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ALL = "*"
"""Names every part, where they are undone."""
NO_NETEM = "its kernel has no netem, which is what delays, corrupts and reorders packets"
LATE = ("delay_s", "jitter_s", "corrupt", "reorder")
"""What netem is needed for."""
SHAPED = ("rate_bits_per_s", *LATE)


def merged(parts: list[Mapping[str, Any]]) -> dict[str, Any]:
    """All conditions as one: the least rate counts, times are added, and what befalls a packet befalls it of any."""
    whole: dict[str, Any] = {"to": {}, "from": {}, "rate_bits_per_s": None, "no_names": False}
    for part in parts:
        for way in ("to", "from"):
            for address, asked in part.get(way, {}).items():
                whole[way][address] = together(whole[way].get(address, {}), asked)
        rates = [rate for rate in (whole["rate_bits_per_s"], part.get("rate_bits_per_s")) if rate]
        whole["rate_bits_per_s"] = min(rates, default=None)
        whole["no_names"] = whole["no_names"] or bool(part.get("no_names"))
    return whole


def together(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Two conditions of the same packets as one."""
    both = {**one, **other}
    for name in set(one) & set(other):
        first, second = one[name], other[name]
        if name == "rate_bits_per_s":
            both[name] = min(first, second)
        elif name in ("delay_s", "jitter_s"):
            both[name] = first + second
        else:
            both[name] = 1 - (1 - first) * (1 - second)
    return both
