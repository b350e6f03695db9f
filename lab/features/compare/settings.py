"""How two runs were set up differently: scenario, plan, script, engine, software."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.plan.plan import WorkerPlan
from lab.record.read import Record
from lab.record.record_files import read_beginning
from lab.record.sources import scenario_keys, scripts_of
from lab.spec.environment import LAB_VARIABLES
from lab.trace.model import Trace

_NOT_SETTINGS = frozenset({"name", "learn", "predict", "expect", "script", "nodes", "nproc_per_node", "env", "args"})
"""Fields of a scenario that say what to think of a run, or that its plan says better."""
_GIVEN = frozenset((*LAB_VARIABLES, "TORCHELASTIC_RUN_ID", "LAB_SHARED", "LAB_DATA", "LAB_TRACE"))
"""Environment that follows from the shape of the cluster, or that differs from run to run."""
_PLAN = ("scenario", "engine", "nnodes", "nproc_per_node", "cold", "timeout_s")


@dataclass(frozen=True, slots=True)
class Setting:
    """Something that was set differently in two runs."""

    name: str
    before: str | None
    """None where the first run has no such setting."""
    after: str | None


def settings_changed(before: Record, after: Record, traces: tuple[Trace, Trace]) -> list[Setting]:
    """What differs in how two runs were set up, in the order in which a person would look at it."""
    first, second = _settings(before, traces[0]), _settings(after, traces[1])
    names = dict.fromkeys([*first, *second])
    changed = [Setting(name, first.get(name), second.get(name)) for name in names]
    changed = [one for one in changed if one.before != one.after]
    return [*changed, *_scripts_changed(before, after)]


def _settings(record: Record, trace: Trace) -> dict[str, str]:
    plan = record.plan()
    found: dict[str, Any] = {name: getattr(plan, name) for name in _PLAN}
    first = next(iter(plan.workers), WorkerPlan(rank=0))
    found["arguments"] = " ".join(first.argv[1:])
    for name, value in sorted(first.env.items()):
        if name not in _GIVEN:
            found[f"env {name}"] = value
    found.update(_flat({key: value for key, value in scenario_keys(record).items() if key not in _NOT_SETTINGS}))
    found["backends"] = ", ".join(sorted({group.backend for group in trace.groups.values() if group.backend})) or None
    for name in ("torch", "recorder"):
        found[name] = ", ".join(sorted({getattr(rank, name) for rank in trace.ranks.values()} - {""})) or None
    return {name: str(value) for name, value in found.items() if value not in (None, "")}


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", value


def _scripts_changed(before: Record, after: Record) -> list[Setting]:
    """The scripts, and files shipped with them, that differ: how many lines went and came."""
    mains = [Path(record.plan().script).name for record in (before, after)]
    others = {name for record in (before, after) for name in scripts_of(record)} - set(mains)
    changed = []
    for names in [mains, *([name, name] for name in sorted(others))]:
        texts = [_lines(record, name) for record, name in zip((before, after), names, strict=True)]
        if texts[0] == texts[1]:
            continue
        lines = [Counter(text or []) for text in texts]  # whatever their order: what aligns lines takes forever on some
        gone, came = (lines[0] - lines[1]).total(), (lines[1] - lines[0]).total()
        sides = [None if text is None else name for text, name in zip(texts, names, strict=True)]
        counts = f"-{gone} +{came} lines"
        changed.append(Setting(f"script ({counts})", sides[0], sides[1]))
    return changed


def _lines(record: Record, name: str) -> list[str] | None:
    try:
        return read_beginning(record.path, name).splitlines() if name else None
    except OSError:
        return None
