"""Runs that one command made one after the other, and the scenario and scripts of a record as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.errors import RecordError
from lab.frozen import Frozen
from lab.record.layout import RUNS
from lab.record.read import Record, find_record, list_records
from lab.record.record_files import is_record, list_names


class Suite(Frozen):
    """The records of such runs."""

    name: str
    records: tuple[Record, ...]
    """In the order in which they ran."""
    planned: int
    """How many runs there were to be; one that could not begin has no record."""


def find_suite(name: str | None, runs: Path = RUNS) -> Suite:
    """The suite that a run is of; without a name, the latest.

    Raises:
        RecordError: there is none.
    """
    records = list_records(runs) if name is None else [find_record(name, runs)]
    turns = (record.readable_plan().turn for record in reversed(records))
    turn = next((turn for turn in turns if turn is not None and turn.suite), None)
    if turn is None:
        who = "no run on record" if name is None else f"run {records[0].run}"
        was = "was made together with others" if name is None else "was made alone"
        raise RecordError(f"{who} {was}", "several scenarios, or a folder of them, make a suite: `lab run scenarios/`")
    if name is not None:
        runs = records[0].path.parent
    members = [(found.number, record) for record in list_records(runs) if (found := record.readable_plan().turn)
               and found.suite == turn.suite]  # fmt: skip
    members.sort(key=lambda one: one[0])
    return Suite(name=turn.suite, records=tuple(record for _, record in members), planned=turn.of)


def earlier_records(name: str, runs: Path = RUNS) -> list[Record]:
    """Runs that others are compared with, oldest first: those in a folder, of a suite, or one with all of its suite.

    Args:
        name: a folder of runs, the folder of one, the name of a suite, or that of a run.
        runs: where runs and suites of that name are.

    Raises:
        RecordError: there is nothing of that name, or no run in it.
    """
    folder = Path(name)
    if folder.is_dir() and not is_record(folder):
        found = list_records(folder)
        if not found:
            raise RecordError(f"there are no runs in {folder}", "name a folder of records, such as .lab/runs")
        return found
    turns = [(record, record.readable_plan().turn) for record in list_records(runs)]
    of_suite = [record for record, turn in turns if turn is not None and turn.suite == name]
    if of_suite:
        return of_suite
    one = find_record(name, runs)
    turn = one.plan().turn
    return list(find_suite(name, runs).records) if turn is not None and turn.suite else [one]


_LONGEST_NUMBER = 300
"""Characters; a longer scalar of a scenario stays text."""


def scenario_keys(record: Record) -> Mapping[str, Any]:
    """The keys of the scenario on record, as plain data; empty where it cannot be read, or is no possible scenario.

    Its bounds are those of any scenario: so aliases, depth and size cannot make a view slow.
    """
    from lab.spec.document import MAX_BYTES, node_of
    from lab.spec.reading import InvalidError

    text = record.scenario_text()
    if len(text) > MAX_BYTES:
        return {}
    try:
        data = _plain(node_of(text))
    except InvalidError:
        return {}
    return data if isinstance(data, dict) else {}


def _plain(node: Any) -> Any:
    """The plain data of a YAML node; what is no number, boolean or nothing is text."""
    import yaml

    if node.id == "mapping":
        return {str(key.value): _plain(value) for key, value in node.value}
    if node.id == "sequence":
        return [_plain(one) for one in node.value]
    if len(node.value) > _LONGEST_NUMBER:
        return node.value
    try:
        return yaml.SafeLoader("").construct_document(node)
    except (yaml.YAMLError, ValueError, OverflowError):
        return node.value


def scripts_of(record: Record) -> list[str]:
    """The names of the scripts in a record, in order."""
    return sorted(name for name in list_names(record.path) if name.endswith(".py"))
