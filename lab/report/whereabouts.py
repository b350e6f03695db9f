"""Where ranks are now, in one line: those at the same place together."""

from __future__ import annotations

from collections.abc import Mapping

from lab.report.harmless import harmless
from lab.report.live import fit
from lab.trace.now import Place
from lab.words import format_duration, name_ranks

_WORTH_TELLING_S = 1.0


def whereabouts_text(elapsed_s: float, places: Mapping[int, Place], now: float, columns: int) -> str:
    """`… 12 s  rank 0: all_reduce train.py:41 (8 s) · rank 1: in no call since train.py:39 (3 s)`.

    Args:
        elapsed_s: how long the run takes already.
        places: by rank.
        now: Unix time.
        columns: what does not fit into so many is left out.
    """
    together: dict[str, list[Place]] = {}
    for _, place in sorted(places.items()):
        together.setdefault(place.words, []).append(place)
    text, left = f"… {format_duration(round(elapsed_s))} ", len(together)
    for words, group in together.items():
        took = now - min(place.since for place in group)
        told = f" ({format_duration(round(took))})" if took >= _WORTH_TELLING_S else ""
        item = f"{name_ranks(place.rank for place in group)}: {harmless(words)}{told}"
        longer = f"{text} · {item}" if left < len(together) else f"{text} {item}"
        room = columns - (len(f" · +{left}") if left > 1 else 0)
        if len(longer) > room and left < len(together):
            return fit(f"{text} · +{left}", columns)
        text, left = longer, left - 1
    return fit(text, columns)
