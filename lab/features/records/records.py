"""Suites of runs that one command made, and the scenario and scripts of a record as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

from lab.errors import RecordError
from lab.frozen import Frozen
from lab.record.layout import RUNS
from lab.record.read import Record, Turn, find_record, list_records
from lab.record.record_files import is_record, list_names


class Suite(Frozen):
    """The records of a suite."""

    name: str
    records: tuple[Record, ...]
    """In the order in which they ran."""
    planned: int
    """Number of planned runs; one that could not begin has no record."""


def find_suite(name: str | None, runs: Path = RUNS) -> Suite:
    """Return the suite of a run; without a name, the latest suite.

    Raises:
        RecordError: There is none.
    """
    records = list_records(runs) if name is None else [find_record(name, runs)]
    if (turn := next((turn for _, turn in _turns(reversed(records))), None)) is None:
        who = "no recorded run" if name is None else f"run {records[0].run}"
        was = "is part of a suite" if name is None else "is not part of a suite"
        raise RecordError(f"{who} {was}", "several scenarios, or a folder of them, make a suite: `lab run scenarios/`")
    if name is not None:
        runs = records[0].path.parent
    members = [(record, other.number) for record, other in _turns(list_records(runs)) if other.suite == turn.suite]
    members.sort(key=itemgetter(1))
    return Suite(name=turn.suite, records=tuple(record for record, _ in members), planned=turn.of)


def _turns(records: Iterable[Record]) -> Iterator[tuple[Record, Turn]]:
    """Yield the records that belong to a suite, each with its position."""
    for record in records:
        if (turn := record.readable_plan().turn) is not None and turn.suite:
            yield record, turn


def earlier_records(name: str, runs: Path = RUNS) -> list[Record]:
    """Return runs to compare others with, oldest first: those in a folder, of a suite, or one with its suite.

    Args:
        name: A folder of runs, the folder of one run, the name of a suite, or that of a run.
        runs: The folder in which to find runs and suites by name.

    Raises:
        RecordError: There is nothing with this name, or it has no run.
    """
    folder = Path(name)
    if folder.is_dir() and not is_record(folder):
        if not (records := list_records(folder)):
            raise RecordError(f"there are no runs in {folder}", "name a folder of records, such as .lab/runs")
        return records
    if of_suite := [record for record, turn in _turns(list_records(runs)) if turn.suite == name]:
        return of_suite
    one = find_record(name, runs)
    return list(find_suite(name, runs).records) if any(_turns([one])) else [one]


def scenario_keys(record: Record) -> Mapping[str, Any]:
    """Return the keys of the recorded scenario as plain data; empty if it is unreadable or impossible.

    The limits of scenarios apply, so that aliases, depth, and size cannot make a view slow.
    """
    import yaml

    from lab.spec.document import MAX_BYTES, node_of
    from lab.spec.reading import InvalidError

    text = record.scenario_text()
    try:
        data = yaml.SafeLoader("").construct_document(node_of(text)) if len(text) <= MAX_BYTES else {}
    except (InvalidError, yaml.YAMLError, ValueError, OverflowError):
        return {}
    return data if isinstance(data, dict) else {}


def scripts_of(record: Record) -> list[str]:
    """Return the names of the scripts in a record, in order."""
    return sorted(name for name in list_names(record.path) if name.endswith(".py"))
