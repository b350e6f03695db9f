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
from lab.record.read import Record
from lab.record.result import RankResult
from lab.report.html import bundle
from lab.report.html.columns import Names, call_lines, columns, mark_lines, microseconds, step_lines
from lab.report.html.environment import facts, variables
from lab.report.html.logs import log_lines
from lab.report.html.moments import moments, origin_of
from lab.report.html.operations import matrix_view, operation_rows
from lab.report.html.pictures import choose, draw, stand_ins
from lab.report.html.sources import cite, sources
from lab.report.palette import VERDICTS, rank_colour
from lab.report.picture.model import unrecorded_ranks
from lab.verdict.evidence import read_evidence
from lab.words import format_duration, format_value, plural

NAME = "report.html"
_MOST_TRACEBACK_LINES = 25


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
    path = output if output is not None else record.path / NAME
    if path.is_dir():
        path = path / (NAME if path == record.path else f"{record.run}.html")
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
        result, shown = self.result, sources(self.record)
        results = {rank.rank: rank for rank in result.ranks}
        shared, differing, by_rank = variables(self.record)
        environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        environment.filters.update(
            cite=lambda text: cite(text, shown),
            duration=format_duration,
            last_lines=_last_lines,
            plural=plural,
            value=format_value,
        )
        return environment.from_string(bundle.template()).render(
            version=__version__,
            run=self.record.run,
            result=result,
            tone=VERDICTS[result.verdict],
            explanation=self.explanation,
            stacks=[rank for rank in result.ranks if rank.stack],
            noted=[rank for rank in result.ranks if rank.notes],
            left_out=self.left_out,
            traced=bool(self.steps),
            steps=len(self.steps),
            pictures=len(self.drawn),
            ranks=list(self.colours),
            colours=self.colours,
            workers=[(one, results.get(one.rank, RankResult(rank=one.rank))) for one in self.record.plan().workers],
            facts=facts(self.record, result, self.trace),
            variables=shared,
            differing=differing,
            variables_by_rank=by_rank,
            matrix=matrix_view(self.steps, list(self.colours)),
            operations=operation_rows(self.steps),
            lines=[(line, line.time - self.origin) for line in self.lines],
            log_ranks=sorted({line.rank for line in self.lines}),
            sources=shown,
            style=bundle.style_sheet(),
            import_map=bundle.import_map(),
            start=bundle.START,
            policy=bundle.policy(),
            data=bundle.pack(self._data()),
        )

    def _data(self) -> dict[str, Any]:
        """Everything that the page's timeline and list of steps are drawn from."""
        names = Names()
        lives, notes, faults = moments(self.record, self.origin)
        nodes, unrecorded = self.record.workers(), unrecorded_ranks(self.trace)
        begins = [life.get("begin", 0) for life in lives.values()]
        ends = [life.get("end", 0) for life in lives.values()]
        operations = {call.op for rank in self.trace.ranks.values() for call in rank.calls}
        expectations, size = self.result.expectations, len(self.colours)
        printed = (
            {"rank": line.rank, "begin": microseconds(line.time - self.origin), "stream": line.stream}
            for line in self.lines
        )
        return {
            "span": [min([0, *begins]), max([microseconds(self.trace.last), *ends, 1])],
            "ranks": [{"rank": r, "node": nodes.get(r, ""), "life": lives.get(r, {})} for r in self.colours],
            "calls": columns(call_lines(self.trace, self.steps), names),
            "steps": {**columns(step_lines(self.steps), names), "picture": stand_ins(self.steps, self.drawn)},
            "marks": columns(mark_lines(self.trace), names),
            "logs": columns(printed, names),
            "notes": notes,
            "faults": faults,
            "pictures": {step.number: draw(step, expectations, size, unrecorded) for step in self.drawn},
            "colours": {op: operation(op).colour for op in sorted(operations)},
            "names": list(names),
        }


def _last_lines(text: str) -> str:
    lines = text.rstrip().splitlines()
    cut = ["…"] if len(lines) > _MOST_TRACEBACK_LINES else []
    return "\n".join([*cut, *lines[-_MOST_TRACEBACK_LINES:]])
