"""Whose script named another backend than the run has, and which one its groups got."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from lab.diagnosis.finding import BackendNamed, Finding, FindingKind
from lab.node.messages.agent import Named


def find_named_backends(named: Sequence[Named]) -> list[Finding]:
    """A finding for each backend that was named, and for what became of it."""
    alike: dict[tuple[str, str, bool], list[Named]] = defaultdict(list)
    for one in named:
        alike[one.named, one.backend, one.instead].append(one)
    return [backend_finding(ones) for ones in alike.values()]


def backend_finding(named: Sequence[Named]) -> Finding:
    """What ranks named, and got: `ranks 0-2 named gloo at train.py:7, and got mpi instead, as was asked for`."""
    first, lines = named[0], tuple(one.at for one in named)
    facts = BackendNamed(
        named=first.named,
        backend=first.backend,
        instead=first.instead,
        at=lines,
        others=tuple(sorted({one.rank for one in named})),
        lines=lines,
    )
    return Finding(kind=FindingKind.BACKEND, facts=facts)
