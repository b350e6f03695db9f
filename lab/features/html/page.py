"""Build the report of a run and write it; show a result in a notebook.

In a notebook there are no scripts and no style sheets, so that JupyterLab, VS Code, and nbviewer show it alike. Text
keeps the color of the page around it, which suits light and dark pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab import words
from lab.diagnosis.evidence import Evidence, read_evidence
from lab.diagnosis.explain import explain_run
from lab.feature import find_view
from lab.features.html import REPORT
from lab.features.html.contents import MOST_FILES, collect_shown_files, link_citations, read_log_lines, read_sources
from lab.features.html.timelines import run_data, timeline_svg
from lab.features.html.write import compress_data, fill_template, render_page, write_page
from lab.features.pictures.model import picture_of, unrecorded_ranks
from lab.features.pictures.svg import svg_of
from lab.features.pictures.text import step_kind
from lab.features.stragglers.findings import describe_part
from lab.features.stragglers.timing import critical_path_of, from_new_group, parts_of
from lab.features.timeline.svg import lanes_of, operation_tones, rank_colour
from lab.features.traffic.traffic import OpRow, matrix_view, summarize_operations
from lab.frozen import Frozen
from lab.operations import get_operation
from lab.plan.plan import WorkerPlan
from lab.record.read import Record
from lab.record.result import Expectation, RankResult, Result
from lab.report.sanitize import sanitize_plain
from lab.report.style import VERDICTS, group_by_kind, mask_numbers, range_text, spans_text
from lab.report.verdict import ended_alike, name_culprit, note_rows, unmet_sentences
from lab.trace.steps import Step
from lab.words import clip_end, format_bytes, format_duration, format_rate, group_pairs, join_words, name_nodes

MOST_PICTURES = 200
_MOST_BLOCKS = 51_200
"""Limit for all pictures together, which 200 pictures of 64 ranks reach: a run of 1,000 ranks has fewer pictures."""
_MOST_OF_ONE_SORT = {"broken": 60, "wrong": 60, "late": 20}
_MOST_COMPARED = 2000
"""At most this many steps with values are searched for wrong results."""


def choose_steps(steps: Sequence[Step], limit: int = MOST_PICTURES) -> list[Step]:
    """Return the most informative steps: broken ones, wrong results, the first of each kind, the longest waits.

    The first steps fill up the rest.
    """
    blocks = {}  # what each picture draws: the ranks, and their tensors before and after
    for step in steps:
        drawn = sum(1 + len(call.inputs) + len(call.outputs) for call in step.calls.values())
        blocks[step.number] = drawn + (0 if step.message else len(step.group.ranks))
    if len(steps) <= limit and sum(blocks.values()) <= _MOST_BLOCKS:
        return list(steps)
    chosen, remaining_blocks = set[int](), _MOST_BLOCKS
    for step in _order_by_interest(steps):
        if len(chosen) == limit:
            break
        if step.number not in chosen and blocks[step.number] <= remaining_blocks:
            remaining_blocks -= blocks[step.number]
            chosen.add(step.number)
    return [step for step in steps if step.number in chosen]


def _order_by_interest(steps: Sequence[Step]) -> Iterator[Step]:
    yield from [step for step in steps if step.state != "completed"][: _MOST_OF_ONE_SORT["broken"]]
    valued = [step for step in steps if any(b.values is not None for call in step.calls.values() for b in call.outputs)]
    mismatched = [step for step in valued[:_MOST_COMPARED] if picture_of(step).check == "wrong"]
    yield from mismatched[: _MOST_OF_ONE_SORT["wrong"]]
    yield from (alike[0] for alike in group_pairs((step_kind(step), step) for step in steps).values())
    yield from sorted(steps, key=lambda step: -max(step.waited.values(), default=0.0))[: _MOST_OF_ONE_SORT["late"]]
    yield from steps


def find_stand_ins(steps: Sequence[Step], drawn: Sequence[Step]) -> list[int]:
    """Return for each step the number of the step whose picture shows it best: itself, one of its kind, or 0."""
    drawn_numbers = {step.number for step in drawn}
    of_kind = {step_kind(step): step.number for step in reversed(drawn)}
    return [step.number if step.number in drawn_numbers else of_kind.get(step_kind(step), 0) for step in steps]


def attempt_rows(record: Record) -> list[dict[str, Any]]:
    """Return a row for each attempt of the run that this is the record of; empty if the run had only one."""
    run = record.run_of_attempt or record
    return [
        {
            "attempt": attempt,
            "tone": VERDICTS[attempt.verdict],
            "nodes": join_words(attempt.nodes),
            "here": (attempt.path or run.path) == record.path,
        }
        for attempt in run.result().attempts
    ]


def compare_variables(record: Record) -> tuple[list[tuple[str, str]], list[str], list[tuple[int, list[str]]]]:
    """Return the environment variables that all workers share, the names of the others, and their values by rank."""
    workers = record.plan().workers
    if not workers:
        return [], [], []
    names = sorted({name for worker in workers for name in worker.env})
    differing = [name for name in names if len({worker.env.get(name) for worker in workers}) > 1]
    rows = [(worker.rank, [worker.env.get(name, "") for name in differing]) for worker in workers]
    return [(name, workers[0].env[name]) for name in names if name not in differing], differing, rows


_MOST_ROWS = 40


def operation_rows(steps: Sequence[Step]) -> list[OpRow]:
    """Return a row for each operation and size, or one for each operation if there are too many sizes."""
    rows = summarize_operations(steps, by_size=True)
    return rows if len(rows) <= _MOST_ROWS else summarize_operations(steps)


_LONGEST_NOTE = 2000


def worker_rows(workers: Sequence[WorkerPlan], results: Sequence[RankResult]) -> list[dict[str, Any]]:
    """Return how each rank ended; ranks that ended alike share a row."""
    ended = {rank.rank: rank for rank in results}
    defaults = (RankResult(rank=one.rank, node=one.node, local_rank=one.local_rank) for one in workers)
    return [
        {
            "ranks": [one.rank for one in group],
            "nodes": name_nodes(one.node for one in group),
            "local_ranks": spans_text({one.local_rank for one in group}),
            "ended": group[0].ended,
            "bad": not group[0].stopped and bool(group[0].error or group[0].signal or group[0].exit_code),
            "time": range_text((one.duration_s for one in group), format_duration),
            "error": group[0].error,
        }
        for group in ended_alike(ended.get(one.rank, one) for one in defaults)
    ]


def stack_rows(results: Sequence[RankResult]) -> list[tuple[list[int], str]]:
    """Return each distinct stack with its ranks; the stacks of the fewest ranks come first."""
    groups = group_by_kind((one for one in results if one.stack), lambda one: mask_numbers(one.stack))
    return [([one.rank for one in group], group[0].stack) for group in sorted(groups, key=len)]


def expectation_rows(expectations: Sequence[Expectation]) -> list[tuple[list[int], Expectation]]:
    """Return expectations with the ranks that they concern; equal results of several ranks share a row."""
    groups = group_by_kind(expectations, lambda one: (one.what, one.met, repr(one.expected), repr(one.got)))
    return [([one.rank or 0 for one in group], group[0]) for group in groups]


_MOST_TRACEBACK_LINES = 25
_MOST_PARTS = 8
_MIN_PART_SHARE = 0.01
"""Share of the critical path from which on a part has a row of its own."""


class Report(Frozen):
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
        """Return the report as `lab report --json` prints it."""
        return {**self.__dict__, "path": str(self.path), "left_out": list(self.left_out)}


def write_report(record: Record, output: Path | None = None) -> Report:
    """Write the report of a record.

    Args:
        record: any record; the report of an incomplete one says what is missing.
        output: the file, or a folder for it; None for `report.html` in the record.

    Raises:
        RecordError: the file cannot be written.
    """
    path = output if output is not None else record.path / REPORT
    if output is not None and path.is_dir():
        path = path / (REPORT if path == record.path else f"{record.run.replace('/', '-')}.html")
    evidence = read_evidence(record)
    page, counts = _page(record, evidence)
    write_page(page, path)
    calls = sum(len(rank.calls) for rank in evidence.trace.ranks.values())
    return Report(path=path, run=record.run, bytes=len(page), calls=calls, steps=len(evidence.steps), **counts)


def _page(record: Record, evidence: Evidence) -> tuple[bytes, dict[str, Any]]:
    """Return the page, and the counts for the report."""
    result, trace, steps = record.result(), evidence.trace, evidence.steps
    explanation, drawn, files = explain_run(record, evidence), choose_steps(steps), collect_shown_files(result)
    ranks = sorted({*trace.ranks, *record.ranks()})
    lines, left_out = read_log_lines(record)
    if len(result.outputs) > len(files):
        hidden = words.format_count(len(result.outputs) - len(files), "file")
        left_out.append(f"{hidden} of the run beyond the first {MOST_FILES}.")
    if len(drawn) < len(steps):
        number = f"{len(drawn)} of {len(steps)} steps"
        left_out.append(f"The page has pictures of {number}; each other step shows that of an equal step.")
    if (sent := matrix_view(steps, ranks)) is None:
        left_out.append(f"Traffic between ranks is left out: {len(ranks):,} ranks are too many pairs.")
    context = result.expectations, len(ranks), unrecorded_ranks(trace)
    pictures = {step.number: picture_of(step, *context) for step in drawn}
    critical = critical_path_of(evidence)
    model = run_data(
        record,
        trace,
        steps,
        lanes=lanes_of(ranks, [trace], [result], explanation.findings),
        path=critical,
        mismatched={number for number, picture in pictures.items() if picture.check == "wrong"},
        logs=((line.rank, line.time, line.stream) for line in lines),
    )
    model["steps"]["picture"] = find_stand_ins(steps, drawn)
    model["pictures"] = {number: svg_of(picture, heading=False) for number, picture in pictures.items()}
    page_sources, parts, find_lesson = read_sources(record), parts_of(critical), find_view("lesson")
    page = render_page(
        "report",
        "main",
        {"last_lines": _last_lines, "part": describe_part, "tones": lambda op: operation_tones(get_operation(op))},
        cite=lambda text: link_citations(text, page_sources),
        record=record,
        result=result,
        tone=VERDICTS[result.verdict],
        culprit=words.capitalize_first(name_culprit(result)),
        colours={rank: rank_colour(rank, len(ranks)) for rank in ranks},
        lesson=find_lesson(record) if find_lesson else None,
        attempts=attempt_rows(record),
        unmet=unmet_sentences(result),
        explanation=explanation,
        steps=steps,
        drawn=drawn,
        path=critical,
        path_late=from_new_group(critical, trace),
        parts=parts,
        listed_parts=sum(part.share >= _MIN_PART_SHARE for part in parts[:_MOST_PARTS]),
        matrix=sent,
        operations=operation_rows(steps),
        write={"bytes": format_bytes, "duration": format_duration, "rate": format_rate},
        lines=lines,
        files=files,
        workers=worker_rows(record.plan().workers, result.ranks),
        stacks=stack_rows(result.ranks),
        noted=note_rows(result.ranks, _LONGEST_NOTE),
        expectations=expectation_rows(result.expectations),
        trace=trace,
        variables=compare_variables(record),
        sources=page_sources,
        left_out=left_out,
        model=model,
        data=compress_data(model),
    )
    left_out += explanation.problems
    return page, {"pictures": len(drawn), "log_lines": len(lines), "left_out": tuple(left_out)}


def _last_lines(text: str) -> str:
    lines = text.rstrip().splitlines()
    return "\n".join([*(["…"] if len(lines) > _MOST_TRACEBACK_LINES else []), *lines[-_MOST_TRACEBACK_LINES:]])


_MOST_PICTURES = 6
_MOST_SENTENCES = 10


def result_html(result: Result) -> str:
    """Render a result as HTML; if its record is gone, only what the result itself holds."""
    record = Record(path=result.path) if result.path is not None and result.path.is_dir() else None
    return fill_template(
        "notebook.html",
        {"plain": sanitize_plain, "clip": clip_end, "colour": rank_colour},
        result=result,
        tone=VERDICTS[result.verdict],
        culprit=words.capitalize_first(name_culprit(result)),
        unmet=[sentence for sentence in unmet_sentences(result) if sentence not in result.reason],
        notes=list(dict.fromkeys(name for rank in result.ranks for name in rank.notes)),
        **(_record_parts(result, record) if record is not None else {}),
    )


def _record_parts(result: Result, record: Record) -> dict[str, Any]:
    """Return what the record of a run adds to its result."""
    evidence = read_evidence(record)
    explanation = explain_run(record, evidence)
    prefix = re.sub(r"[^A-Za-z0-9]+", "-", f"lab-{result.run}")
    lanes = lanes_of(sorted(evidence.trace.ranks), [evidence.trace], [result], explanation.findings)
    count = len(result.ranks)
    # a barrier alone shows nothing
    telling = [step for step in evidence.steps if step.state != "completed" or step.operation.moves_data]
    return {
        "sentences": explanation.new_sentences[:_MOST_SENTENCES],
        "lines": read_log_lines(record)[0],
        "timeline": timeline_svg(evidence.trace, evidence.steps, lanes, until=evidence.end_s, prefix=prefix),
        "pictures": [
            (f"Step {step.number}: {step.title}", svg_of(picture_of(step, result.expectations, count)))
            for step in choose_steps(telling, _MOST_PICTURES)
        ],
    }
