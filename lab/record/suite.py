"""Runs that one command made, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.errors import RecordError
from lab.record.layout import RUNS
from lab.record.read import Record, find_record, list_records


@dataclass(frozen=True, kw_only=True)
class Suite:
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
    turns = (record.plan().turn for record in reversed(records))
    turn = next((turn for turn in turns if turn is not None and turn.suite), None)
    if turn is None:
        who = "no run on record" if name is None else f"run {records[0].run}"
        was = "was made together with others" if name is None else "was made alone"
        raise RecordError(f"{who} {was}", "several scenarios, or a folder of them, make a suite: `lab run scenarios/`")
    if name is not None:
        runs = records[0].path.parent
    members = [(found.number, record) for record in list_records(runs) if (found := record.plan().turn)
               and found.suite == turn.suite]  # fmt: skip
    members.sort(key=lambda one: one[0])
    return Suite(name=turn.suite, records=tuple(record for _, record in members), planned=turn.of)
