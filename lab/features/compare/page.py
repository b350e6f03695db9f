"""Write a page that compares two runs: their timelines with differences marked, and their times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.features.compare import DIFF_REPORT, compare
from lab.features.html.timelines import run_data
from lab.features.html.write import compress_data, render_page, write_page
from lab.features.timeline.svg import lanes_of, rank_colour
from lab.frozen import Frozen
from lab.record.read import Record
from lab.report.style import VERDICTS
from lab.trace.model import Trace
from lab.trace.read import open_trace
from lab.trace.steps import Step, match_steps

_MOST_CHANGES = 60


class DiffReport(Frozen):
    """A page that was written."""

    path: Path
    runs: tuple[str, str]
    bytes: int
    identical: bool
    """Whether the runs did the same, regardless of times."""


def write_diff(before: Record, after: Record, output: Path | None = None) -> DiffReport:
    """Write the page that compares two runs.

    Args:
        before: One run, with a trace.
        after: Another run.
        output: The file, or a folder for it; None: `diff.html` in the record of the second run.

    Raises:
        RecordError: A run has no trace, or the file cannot be written.
    """
    path = after.path if output is None else output
    path = path / DIFF_REPORT if output is None or path.is_dir() else path
    page, identical = _page((before, after))
    write_page(page, path)
    return DiffReport(path=path, runs=(before.run, after.run), bytes=len(page), identical=identical)


def _page(records: tuple[Record, Record]) -> tuple[bytes, bool]:
    traces = open_trace(records[0]), open_trace(records[1])
    steps = [*map(match_steps, traces)]
    comparison, matches = compare.compare_runs(*records, traces), compare.match_calls(traces)
    differing = matches.removed, matches.added
    known = [{*trace.ranks, *record.ranks()} for record, trace in zip(records, traces, strict=True)]
    ranks = sorted(known[0] | known[1])
    results = [record.result() for record in records]
    lanes = lanes_of(ranks, traces, results)
    own = [[mine for lane in lanes if (mine := [rank for rank in lane if rank in there])] for there in known]
    models = [*map(_data, records, traces, steps, own, differing)]
    page = render_page(
        "diff",
        "diff",
        {},
        comparison=comparison,
        runs=[
            {"name": record.run, "result": result, "tone": VERDICTS[result.verdict], "nodes": record.ranks(),
             "steps": len(of), "ranks": len(trace.ranks), "differing": len(calls)}
            for record, result, of, trace, calls in zip(records, results, steps, traces, differing, strict=True)
        ],
        ranks=ranks,
        colours={rank: rank_colour(rank, len(ranks)) for rank in ranks},
        tables=[("Operations", *compare.operation_rows(comparison))] if comparison.operations else [],
        most_changes=_MOST_CHANGES,
        models=models,
        both={key: {**models[0][key], **models[1][key]} for key in ("colours", "phases")}
        | {key: models[0][key] + models[1][key] for key in ("notes", "faults", "ranks", "lanes")},
        data=compress_data({"runs": models, "pairs": _pairs(steps, matches)}),
    )  # fmt: skip
    return page, comparison.identical


def _data(
    record: Record, trace: Trace, steps: Sequence[Step], lanes: Sequence[Sequence[int]], differing: set[tuple[int, int]]
) -> dict[str, Any]:
    differs = [int((rank, call.index) in differing) for rank in sorted(trace.ranks) for call in trace.ranks[rank].calls]
    data = run_data(record, trace, steps, lanes=lanes)
    data["calls"]["differs"] = differs
    return data


def _pairs(steps: Sequence[Sequence[Step]], matches: compare.Counterparts) -> list[tuple[int, int]]:
    """Return the numbers of steps that correspond in both runs, in the order of the first."""
    number_of = [{(call.rank, call.index): step.number for step in of for call in step.calls.values()} for of in steps]
    pairs: dict[int, int] = {}
    used: set[int] = set()
    for ours, theirs in matches.pairs:
        one, other = number_of[0].get((ours.rank, ours.index)), number_of[1].get((theirs.rank, theirs.index))
        if one is not None and other is not None and one not in pairs and other not in used:
            pairs[one] = other
            used.add(other)
    return sorted(pairs.items())
