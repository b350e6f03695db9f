"""Puts the report together and writes it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment

from lab import __version__
from lab.errors import RecordError
from lab.explain.explain import explain
from lab.operations import operation
from lab.record.layout import REPORT
from lab.record.read import Record
from lab.record.result import RankResult
from lab.report.html import bundle
from lab.report.html.columns import Names, call_lines, columns, mark_lines, microseconds, step_lines
from lab.report.html.environment import facts, variables
from lab.report.html.logs import log_lines
from lab.report.html.moments import moments, origin_of
from lab.report.html.operations import matrix_view, operation_rows
from lab.report.html.pictures import choose, stand_ins
from lab.report.html.sources import cite, sources
from lab.report.palette import VERDICTS, rank_colour
from lab.report.picture.model import picture_of, unrecorded_ranks
from lab.report.picture.svg import svg_of
from lab.verdict.evidence import read_evidence
from lab.words import format_duration, format_value, plural

_MOST_TRACEBACK_LINES = 25
_PHASES = {"forward": "#3f78c9", "backward": "#cc7a29", "loss": "#9360c4", "step": "#3d9455", "zero_grad": "#7d858f"}
"""Their colours."""
_OTHER_PHASE = "#838a94"


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report that was written."""

    path: Path
    run: str
    bytes: int
    calls: int
    steps: int
    pictures: int
    log_lines: int
    left_out: tuple[str, ...]
    """What the page does not show, and what the record lacks; a sentence each."""

    def to_json(self) -> dict[str, Any]:
        """As `lab report --json` prints it."""
        return {**self.__dict__, "path": str(self.path), "left_out": list(self.left_out)}


def write_report(record: Record, output: Path | None = None) -> Report:
    """Write the report of a record.

    Args:
        record: any record; one that is cut short makes a report that says what is missing.
        output: the file, or a folder for it; None: `report.html` in the record.

    Raises:
        RecordError: the file cannot be written.
    """
    with _collector_paused():
        return _write(record, output)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Reading a trace makes millions of objects, all of them kept: looking for garbage took a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _write(record: Record, output: Path | None) -> Report:
    path = output if output is not None else record.path / REPORT
    if path.is_dir():
        path = path / (REPORT if path == record.path else f"{record.run}.html")
    page = _Page(record)
    data = page.html().encode("utf-8", "replace")
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError as error:
        raise RecordError(
            f"cannot write the report {path}: {error.strerror or error}", "choose another file with --output"
        ) from error
    return Report(
        path=path,
        run=record.run,
        bytes=len(data),
        calls=sum(len(rank.calls) for rank in page.trace.ranks.values()),
        steps=len(page.steps),
        pictures=len(page.drawn),
        log_lines=len(page.lines),
        left_out=(*page.left_out, *page.explanation.problems),
    )


class _Page:
    """What the page is made of, read once."""

    def __init__(self, record: Record) -> None:
        evidence = read_evidence(record)
        self.record, self.result = record, record.result()
        self.trace, self.steps = evidence.trace, evidence.steps
        self.explanation = explain(record, evidence)
        self.drawn = choose(self.steps)
        self.lines, self.left_out = log_lines(record)
        if len(self.drawn) < len(self.steps):
            drawn = f"{len(self.drawn)} of {len(self.steps)} steps"
            self.left_out.append(f"Pictures were drawn of {drawn}; the others show one of their kind.")
        ranks = sorted({*self.trace.ranks, *record.workers()})
        self.colours = {rank: rank_colour(rank, len(ranks)) for rank in ranks}
        self.origin = origin_of(record, self.trace.origin)

    def html(self) -> str:
        """The page."""
        shown = sources(self.record)
        results = {rank.rank: rank for rank in self.result.ranks}
        environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        environment.filters.update(
            cite=lambda text: cite(text, shown),
            duration=format_duration,
            last_lines=_last_lines,
            plural=plural,
            value=format_value,
        )
        return environment.from_string(bundle.template()).render(
            **vars(self),
            bundle=bundle,
            nodes=self.record.workers(),
            version=__version__,
            tone=VERDICTS[self.result.verdict],
            workers=[(one, results.get(one.rank, RankResult(rank=one.rank))) for one in self.record.plan().workers],
            facts=facts(self.record, self.result, self.trace),
            variables=variables(self.record),
            matrix=matrix_view(self.steps, list(self.colours)),
            operations=operation_rows(self.steps),
            sources=shown,
            data=self._data(),
        )

    def _data(self) -> dict[str, Any]:
        """Everything that the page's timeline and list of steps are drawn from."""
        names = Names()
        lives, notes, faults = moments(self.record, self.origin)
        begins = [life.get("begin", 0) for life in lives.values()]
        ends = [life.get("end", 0) for life in lives.values()]
        ranks = self.trace.ranks.values()
        operations = {call.op for rank in ranks for call in rank.calls}
        shown = self.result.expectations, len(self.colours), unrecorded_ranks(self.trace)
        printed = (
            {"rank": line.rank, "begin": microseconds(line.time - self.origin), "stream": line.stream}
            for line in self.lines
        )
        return {
            "span": [min([0, *begins]), max([microseconds(self.trace.last), *ends, 1])],
            "ranks": [{"rank": rank, "life": lives.get(rank, {})} for rank in self.colours],
            "calls": columns(call_lines(self.trace, self.steps), names),
            "steps": {**columns(step_lines(self.steps), names), "picture": stand_ins(self.steps, self.drawn)},
            "marks": columns(mark_lines(self.trace), names),
            "logs": columns(printed, names),
            "notes": notes,
            "faults": faults,
            "pictures": {step.number: svg_of(picture_of(step, *shown), heading=False) for step in self.drawn},
            "phases": {mark.name: _PHASES.get(mark.name, _OTHER_PHASE) for rank in ranks for mark in rank.marks},
            "colours": {op: operation(op).colour for op in sorted(operations)},
            "names": list(names),
        }


def _last_lines(text: str) -> str:
    lines = text.rstrip().splitlines()
    cut = ["…"] if len(lines) > _MOST_TRACEBACK_LINES else []
    return "\n".join([*cut, *lines[-_MOST_TRACEBACK_LINES:]])
