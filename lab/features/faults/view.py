"""What can be broken on purpose, and what is broken now, for a person and for a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab.engine.select import engine_names
from lab.features.faults.fault_journal import Standing
from lab.features.faults.kind import FaultKind, fault_kinds
from lab.report.style import Style
from lab.report.table import table_text
from lab.words import format_duration, listing


def kinds_json() -> list[dict[str, Any]]:
    """Every kind, with which engine can do it, or why not."""
    return [
        {
            "kind": name,
            "does": kind.does,
            "allowed": kind.value().allowed,
            "example": kind.example,
            "by_rank": kind.by_worker,
            "cannot": cannot(kind),
        }
        for name, kind in fault_kinds().items()
    ]


def cannot(kind: type[FaultKind]) -> dict[str, str]:
    """The engines that cannot do a kind, and why not."""
    return {engine: why for engine in engine_names() if (why := kind.why_not(engine))}


def kinds_text(style: Style) -> str:
    """A table of the kinds, and below it why an engine cannot do some."""
    kinds, engines = fault_kinds().items(), engine_names()
    rows = [[name, *(engine_cell(kind, engine) for engine in engines), kind.does] for name, kind in kinds]
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, kind in kinds:
        for engine, why in cannot(kind).items():
            reasons.setdefault((engine, why), []).append(name)
    told = [f"not on {engine}: {listing(names)}, which {why}" for (engine, why), names in reasons.items()]
    return "\n".join([table_text(["fault", *engines, "what it breaks"], rows, style), *told])


def engine_cell(kind: type[FaultKind], engine: str) -> str:
    """Whether an engine can do it, and whether only in a run."""
    if kind.why_not(engine):
        return "no"
    return "in runs" if kind.by_worker else "yes"


def standing_text(standing: Sequence[Standing], now: float, style: Style) -> str:
    """What is broken now, with who did it and since when."""
    if not standing:
        return "nothing is broken"
    rows = [[one.said, one.state, one.by, f"{format_duration(max(0.0, now - one.since))} ago"] for one in standing]
    return table_text(["fault", "state", "done by", "since"], rows, style)
