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
from lab.explain.model import Explanation
from lab.operations import operation
from lab.record.read import Record
from lab.record.result import Result
from lab.report.html import bundle
from lab.report.html.columns import Names, call_columns, mark_columns, microseconds, step_columns
from lab.report.html.environment import facts, variables, worker_rows
from lab.report.html.logs import LogLine, log_lines
from lab.report.html.moments import moments, note_rows, origin_of
from lab.report.html.operations import matrix_view, operation_rows
from lab.report.html.pictures import choose, draw, stand_ins
from lab.report.html.sources import cite, sources
from lab.report.html.verdict import verdict_view
from lab.report.palette import rank_colour
from lab.report.picture.model import unrecorded_ranks
from lab.trace.model import Trace
from lab.trace.steps import Step
from lab.verdict.evidence import read_evidence
from lab.words import format_duration, plural

NAME = "report.html"


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
    evidence = read_evidence(record)
    trace, steps = evidence.trace, evidence.steps
    explanation = explain(record, evidence)
    drawn = choose(steps)
    lines, left_out = log_lines(record)
    if len(drawn) < len(steps):
        left_out.append(
            f"Pictures were drawn of {len(drawn)} of {len(steps)} steps; the others show one of their kind."
        )
    html = _render(record, explanation, trace, steps, drawn, lines, left_out)
    data = html.encode("utf-8", "replace")
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
        calls=sum(len(rank.calls) for rank in trace.ranks.values()),
        steps=len(steps),
        pictures=len(drawn),
        log_lines=len(lines),
        left_out=(*left_out, *explanation.problems),
    )


def _render(
    record: Record,
    explanation: Explanation,
    trace: Trace,
    steps: list[Step],
    drawn: list[Step],
    lines: list[LogLine],
    left_out: list[str],
) -> str:
    result = record.result()
    shown = sources(record)
    workers = worker_rows(record, result)
    ranks = sorted({*trace.ranks, *(row["rank"] for row in workers)})
    colours = {rank: rank_colour(rank, len(ranks)) for rank in ranks}
    origin = origin_of(record, trace.origin)
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(duration=format_duration, plural=plural, cite=lambda text: cite(str(text), shown))
    data = _data(record, result, trace, steps, drawn, lines, origin, colours)
    shared, differing, by_rank = variables(record)
    return environment.from_string(bundle.template()).render(
        version=__version__,
        run=record.run,
        result=result,
        verdict=verdict_view(result, explanation),
        problems=explanation.problems,
        left_out=left_out,
        traced=bool(steps),
        steps=len(steps),
        pictures=len(drawn),
        ranks=ranks,
        colours=colours,
        workers=workers,
        facts=facts(record, result, trace),
        variables=shared,
        differing=differing,
        variables_by_rank=by_rank,
        matrix=matrix_view(steps, ranks),
        operations=operation_rows(steps),
        notes=note_rows(result.ranks),
        expectations=result.expectations,
        lines=[(line, line.time - origin) for line in lines],
        log_ranks=sorted({line.rank for line in lines}),
        sources=shown,
        style=bundle.style_sheet(),
        import_map=bundle.import_map(),
        start=bundle.START,
        policy=bundle.policy(),
        data=bundle.pack(data),
    )


def _data(
    record: Record,
    result: Result,
    trace: Trace,
    steps: list[Step],
    drawn: list[Step],
    lines: list[LogLine],
    origin: float,
    colours: dict[int, str],
) -> dict[str, Any]:
    """Everything that the page's timeline and list of steps are drawn from."""
    names = Names()
    told = moments(record, origin)
    nodes, unrecorded = record.workers(), unrecorded_ranks(trace)
    begins = [life.get("begin", 0) for life in told["lives"].values()]
    operations = {call.op for rank in trace.ranks.values() for call in rank.calls}
    ends = [life.get("end", 0) for life in told["lives"].values()]
    return {
        "span": [min([0, *begins]), max([microseconds(trace.last), *ends, 1])],
        "ranks": [{"rank": rank, "node": nodes.get(rank, ""), "colour": colour} for rank, colour in colours.items()],
        "calls": call_columns(trace, steps, names),
        "steps": {**step_columns(steps, names), "picture": stand_ins(steps, drawn)},
        "marks": mark_columns(trace, names),
        "logs": {
            "t": [microseconds(line.time - origin) for line in lines],
            "rank": [line.rank for line in lines],
            "stream": [line.stream for line in lines],
        },
        **told,
        "pictures": {step.number: draw(step, result.expectations, len(colours), unrecorded) for step in drawn},
        "colours": {op: operation(op).colour for op in sorted(operations)},
        "names": names.words(),
    }
