"""Faults outside of scenarios, as a file would say them: of the command line, of a file of their own, of a journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lab.features.faults.fault import Fault, fault_list, one_fault
from lab.features.faults.kind import FaultKind, fault_kinds
from lab.spec.document import node_of, read_document
from lab.spec.reading import Reading, Value

_KEY = "faults"


def named_faults(named: Iterable[str]) -> tuple[Fault, ...]:
    """What a command line names: each a fault, or a YAML file with a list of them.

    Raises:
        ScenarioError: one is none; a line a problem.
    """
    files = (".yaml", ".yml")
    found = (read_faults(Path(one)) if one.endswith(files) else (parse_fault(one),) for one in named)
    return tuple(fault for faults in found for fault in faults)


def read_faults(path: Path) -> tuple[Fault, ...]:
    """The faults in a file: a list, or a mapping with the key `faults`, such as a scenario.

    Raises:
        ScenarioError: it says no faults; a line a problem.
    """
    reading, found = Reading(path), tuple[Fault, ...]()
    with reading.attempt():
        value = Value(read_document(path), "", reading)
        if value.kind == "mapping":
            named = {name.raw: one for name, one in value.pairs(fault_list().allowed)}
            if _KEY not in named:
                raise value.problem(f"it has no key {_KEY}; allowed: {fault_list().allowed}")
            value = named[_KEY]
        value.field = _KEY
        found = tuple(fault_list().read(value))
    reading.raise_if_any()
    return found


def parse_fault(text: str) -> Fault:
    """A fault as `--fault` has it: `kill: node2, when: {at: 2s}`, with or without braces around it.

    Raises:
        ScenarioError: it is none; a line a problem.
    """
    reading = Reading(Path("--fault"))
    with reading.attempt():
        found: Fault = one_fault().read(Value(node_of(_in_braces(text)), "fault", reading))
    reading.raise_if_any()
    return found


def parse_kind(kind: str, text: str) -> FaultKind:
    """What a fault of this kind does: its value as a file would say it.

    Raises:
        ScenarioError: it is none; a line a problem.
    """
    reading = Reading(Path("lab fault"))
    with reading.attempt():
        found: FaultKind = fault_kinds()[kind].value().read(Value(node_of(text), kind, reading))
    reading.raise_if_any()
    return found


def kind_data(what: FaultKind) -> dict[str, Any]:
    """What it does, as a file would say it: `{"kill": "node2"}`."""
    from lab.features.faults.kind import key_of

    return {key_of(type(what)): type(what).value().dump(what)}


def kind_of(data: Mapping[str, Any]) -> FaultKind:
    """The inverse of `kind_data`.

    Raises:
        ScenarioError: another version of the lab wrote it.
    """
    import json

    (kind, said), *_ = data.items()
    return parse_kind(kind, json.dumps(said))


def _in_braces(text: str) -> str:
    return text if text.lstrip().startswith("{") else f"{{{text}}}"
