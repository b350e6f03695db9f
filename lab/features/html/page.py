"""Puts the report of a run together and writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.explain import explain
from lab.diagnosis.wording import describe_part
from lab.feature import view
from lab.features.html.files import shown_files
from lab.features.html.logs import log_lines
from lab.features.html.pictures import choose, stand_ins
from lab.features.html.sources import cite, sources
from lab.features.html.tables import (
    attempt_rows,
    expectation_rows,
    facts,
    matrix_view,
    note_rows,
    operation_rows,
    stack_rows,
    variables,
    with_pages,
    worker_rows,
)
from lab.features.html.timelines import microseconds, origin_of, run_data
from lab.features.html.write import collector_paused, pack, render, save
from lab.features.pictures.model import Picture, picture_of, unrecorded_ranks
from lab.features.pictures.svg import svg_of
from lab.features.timeline.colours import operation_tones, rank_colour
from lab.features.timeline.lanes import lanes_of
from lab.record.layout import REPORT
from lab.record.read import Record, ranks_of
from lab.report.style import VERDICTS
from lab.report.verdict import unmet_sentences
from lab.trace.timing import from_new_group, parts_of

_MOST_TRACEBACK_LINES = 25
_MOST_PARTS = 8
_LEAST_SHARE = 0.01
"""Of the critical path: its largest parts are told one by one."""


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
        output: the file, or a folder for it; None: `report.html` in the record, and with it those of earlier attempts.

    Raises:
        RecordError: the file cannot be written.
    """
    with collector_paused():
        return _write(record, output)


def _write(record: Record, output: Path | None) -> Report:
    path = output if output is not None else record.path / REPORT
    if output is not None and path.is_dir():
        path = path / (REPORT if path == record.path else f"{record.run.replace('/', '-')}.html")
    own = path == record.path / REPORT
    page = _Page(record)
    data = page.html(path)
    save(data, path, record.path if own else None)
    if own:
        for earlier in with_pages(record):
            _write(earlier, None)
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
        self.unmet = unmet_sentences(self.result)
        self.stepped = record.plan().stepped
        self.path = evidence.critical_path
        self.path_late = from_new_group(self.path, self.trace)
        self.parts = parts_of(self.path)
        self.told_parts = sum(part.share >= _LEAST_SHARE for part in self.parts[:_MOST_PARTS])
        self.path_s = self.path[-1].end - self.path[0].begin if self.path else 0.0
        self.drawn = choose(self.steps)
        self.lines, self.left_out = log_lines(record)
        self.files = shown_files(self.result)
        self.left_out += self.files.left_out
        if len(self.drawn) < len(self.steps):
            drawn = f"{len(self.drawn)} of {len(self.steps)} steps"
            self.left_out.append(f"Pictures were drawn of {drawn}; the others show one of their kind.")
        ranks = sorted({*self.trace.ranks, *ranks_of(record)})
        self.matrix = matrix_view(self.steps, ranks)
        if self.matrix is None:
            self.left_out.append(f"Who sent how much to whom is left out: {len(ranks):,} ranks are too many pairs.")
        self.colours = {rank: rank_colour(rank, len(ranks)) for rank in ranks}
        self.lanes = lanes_of(ranks, [self.trace], [self.result], self.explanation.findings)
        self.origin = origin_of(record, self.trace.origin)

    def html(self, path: Path) -> bytes:
        """The page, as it is at its place."""
        shown, lesson_of = sources(self.record), view("lesson")
        model = self._data()
        return render(
            "report",
            "main",
            {
                "cite": lambda text: cite(text, shown),
                "last_lines": _last_lines,
                "part": describe_part,
                "tones": operation_tones,
            },
            **vars(self),
            nodes=ranks_of(self.record),
            tone=VERDICTS[self.result.verdict],
            lesson=lesson_of(self.record) if lesson_of else None,
            attempts=attempt_rows(self.record, path),
            workers=worker_rows(self.record.plan().workers, self.result.ranks),
            stacks=stack_rows(self.result.ranks),
            noted=note_rows(self.result.ranks),
            expectations=expectation_rows(self.result.expectations),
            facts=facts(self.record, self.result, self.trace),
            variables=variables(self.record),
            operations=operation_rows(self.steps),
            sources=shown,
            model=model,
            data=pack(model),
        )

    def _data(self) -> dict[str, Any]:
        """Everything that the page's timeline and list of steps are drawn from."""
        pictures = self._pictures()
        printed = (
            {"rank": line.rank, "begin": microseconds(line.time - self.origin), "stream": line.stream}
            for line in self.lines
        )
        data = run_data(
            self.record,
            self.trace,
            self.steps,
            lanes=self.lanes,
            origin=self.origin,
            path=self.path,
            wrong={number for number, picture in pictures.items() if picture.check == "wrong"},
            logs=printed,
            more={"steps": {"picture": stand_ins(self.steps, self.drawn)}},
        )
        drawings = {number: svg_of(picture, heading=False) for number, picture in pictures.items()}
        return {**data, "pictures": drawings}

    def _pictures(self) -> Mapping[int, Picture]:
        shown = self.result.expectations, len(self.colours), unrecorded_ranks(self.trace)
        return {step.number: picture_of(step, *shown) for step in self.drawn}


def _last_lines(text: str) -> str:
    lines = text.rstrip().splitlines()
    cut = ["…"] if len(lines) > _MOST_TRACEBACK_LINES else []
    return "\n".join([*cut, *lines[-_MOST_TRACEBACK_LINES:]])
