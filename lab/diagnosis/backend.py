"""Whose script named another backend than the run has, and which one its groups got."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from lab.diagnosis.finding import Finding
from lab.node.messages.agent import Named
from lab.words import clip, listing, name_ranks

_LONGEST = 80
"""Letters of a name that is shown."""


def find_named_backends(named: Sequence[Named]) -> list[Finding]:
    """A finding for each backend that was named, and for what became of it."""
    alike: dict[tuple[str, str, bool], list[Named]] = defaultdict(list)
    for one in named:
        alike[one.named, one.backend, one.instead].append(one)
    return [
        Finding(
            kind="backend",
            sentence=f"{clause(ones)}.",
            others=tuple(sorted({one.rank for one in ones})),
            lines=tuple(one.at for one in ones),
        )
        for ones in alike.values()
    ]


def clause(named: Sequence[Named]) -> str:
    """What ranks named, and got: `ranks 0-2 named gloo at train.py:7, and mpi carries their groups, as was asked`."""
    first = named[0]
    places = listing(clip(one.at, _LONGEST) for one in named)
    where = f" at {places}" if places else ""
    who = f"{name_ranks({one.rank for one in named})} named {clip(first.named, _LONGEST)}{where}"
    if first.instead:
        return f"{who}, and got {first.backend} instead, as was asked for"
    return f"{who}, and kept it; the scenario says {first.backend}"
