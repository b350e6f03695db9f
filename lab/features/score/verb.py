"""`lab score`: compare the diagnoses of many runs with the faults that were injected.

Compare the verdict of each run, which does not know the faults, with the recorded faults.

  lab score                        all runs here
  lab score .lab/runs other/runs   runs in these folders
  lab score 20261121-kill          one run

right culprit: the verdict names the target of the fault. right kind: it names an effect of such a fault.
unharmed: the run ended well, and no rank is named. noticed after: the median time until the first fact that
shows the fault: an end, a loss, a time-out, or unacknowledged data.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import chain
from operator import attrgetter
from statistics import median
from typing import Any

from lab.cli import arguments as shared
from lab.features.faults.detection import Injected, find_injected
from lab.features.faults.kinds import key_of
from lab.frozen import Frozen
from lab.record.read import Record, list_records
from lab.record.result import Culprit, Result
from lab.report.style import Style, table_text
from lab.words import clip_end, format_count, format_duration

_TELLING = ("cut_off", "connection_reset", "rendezvous", "slow_link", "nonfinite", "outlier", "straggler", "diverged",
            "wrong_result")  # fmt: skip
"""Findings that show the fault if there is no culprit."""


class FaultScore(Frozen):
    """How correct the diagnosis of one run was about one fault."""

    run: str
    kind: str
    fault: str
    culprit: str
    """`right`, `wrong`, `nobody`, or `unharmed`: the run ended well despite the fault, and nobody was named."""
    right_kind: bool
    detected_s: float | None
    """Seconds from the fault to the first fact that showed it; None if nothing did."""
    accused: str = ""
    """The innocent rank, node, or link that was named."""
    reason: str = ""
    """Reason of the verdict."""

    @property
    def missed(self) -> bool:
        """Whether the culprit or the kind is not right."""
        return self.culprit in ("wrong", "nobody") or (self.culprit == "right" and not self.right_kind)


class Row(Frozen):
    """Scores of all faults of one kind."""

    kind: str
    faults: int
    right: int
    nobody: int
    misnamed: int
    unharmed: int
    right_kind: int
    detected: int
    median_s: float | None
    worst_s: float | None
    accused: int


def score_run(record: Record) -> list[FaultScore]:
    """Compare the diagnosis of a run with its faults; empty for a run without faults.

    A run has one culprit. If it matches one fault, the others are not scored. If it matches none, the first fault
    counts as missed.
    """
    injected, result = find_injected(record), record.result()
    if not injected or result.exit_code == 130:
        return []
    named = result.culprit or _find_first_telling(record)
    if named is not None and named.who:
        right = [one for one in injected if one.names(named.rank, named.node, named.link)]
    else:
        right = [one for one in injected if not one.alone and named is not None and named.cause in one.what.shown_as]
    return [_score_fault(one, named, record, result, right=bool(right)) for one in right or injected[:1]]


def _find_first_telling(record: Record) -> Culprit | None:
    """Return the first finding of the explanation that shows a fault, as a culprit, for a verdict without one."""
    from lab.diagnosis.explain import explain_run

    for finding in explain_run(record).findings:
        if finding.kind in _TELLING:
            rank = finding.ranks[0] if finding.ranks else None
            node = record.workers().get(rank, "") if rank is not None else ""
            return Culprit(rank=rank, node=node, link=finding.link, cause=finding.kind)
    return None


def _score_fault(one: Injected, named: Culprit | None, record: Record, result: Result, *, right: bool) -> FaultScore:
    broke = any(rank.stopped or rank.error or rank.signal for rank in result.ranks)
    well = result.verdict in ("passed", "failed") and result.culprit is None and not (broke or result.unmet_by_script)
    accused = "" if right or named is None else named.who if named.rank is None else f"rank {named.rank}"
    after_s = one.detection.after_s
    return FaultScore(
        run=record.run,
        kind=key_of(type(one.what)),
        fault=one.detection.fault,
        culprit="right" if right else "wrong" if accused else "unharmed" if well else "nobody",
        right_kind=right and named is not None and named.cause in one.what.shown_as,
        detected_s=None if after_s is None else round(after_s, 6),
        accused=accused,
        reason=result.reason,
    )


_KEYS = {"scores": "marks", "misnamed": "wrong"}
"""Field -> key in JSON, if they differ."""


def _with_keys(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {_KEYS.get(name, name): value for name, value in items}


class Score(Frozen):
    """Scores of many runs."""

    runs: int
    """Number of runs with faults."""
    rows: tuple[Row, ...]
    """By kind of fault; the last row, without a kind, has the totals."""
    scores: tuple[FaultScore, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the scores as plain data."""
        data = asdict(self, dict_factory=_with_keys)
        return {**data, "misses": [asdict(score) for score in self.scores if score.missed]}


def score_runs(records: Iterable[Record]) -> Score:
    """Compare the diagnoses of many runs with their faults."""
    by_run = [*filter(None, map(score_run, records))]
    scores = [*chain(*by_run)]
    kinds = sorted({score.kind for score in scores})
    rows = [_row(kind, [score for score in scores if score.kind == kind]) for kind in kinds]
    return Score(runs=len(by_run), rows=(*rows, _row("", scores)), scores=tuple(scores))


def _row(kind: str, scores: Sequence[FaultScore]) -> Row:
    times = [score.detected_s for score in scores if score.detected_s is not None and score.culprit != "unharmed"]
    culprits = [score.culprit for score in scores]
    return Row(
        kind=kind,
        faults=len(scores),
        **{name: culprits.count(name) for name in ("right", "nobody", "unharmed")},
        misnamed=culprits.count("wrong"),
        right_kind=sum(score.right_kind for score in scores),
        detected=len(times),
        median_s=median(times) if times else None,
        worst_s=max(times, default=None),
        accused=sum(bool(score.accused) for score in scores),
    )


_HEAD = ["fault", "faults", "right culprit", "nobody", "wrong", "unharmed", "right kind", "noticed after", "at most"]
_LONGEST_REASON = 200


def score_text(summary: Score, style: Style) -> str:
    """Return a table of the scores, and below it each miss with the reason of the verdict."""
    if not summary.scores:
        return "no faults were injected in these runs"
    lines = [table_text(_HEAD, [_cells(row) for row in summary.rows], style)]
    accused = summary.rows[-1].accused
    lines.append(f"{format_count(summary.runs, 'run')}; innocent accused: {accused or 'none'}")
    for score in filter(attrgetter("missed"), summary.scores):
        named = f"named {score.accused}" if score.accused else "named nobody"
        what = "the right one, but for another reason" if score.culprit == "right" else named
        lines.append(f"{style.paint('✘', 'red')} {score.run}: {score.fault}: {what}")
        lines.append(f"    {clip_end(score.reason, _LONGEST_REASON)}")
    return "\n".join(lines)


def _cells(row: Row) -> list[str]:
    asked = row.faults - row.unharmed
    noticed, worst = ("-" if one is None else format_duration(one) for one in (row.median_s, row.worst_s))
    if 0 < row.detected < asked:
        noticed += f" ({row.detected} of {asked})"
    numbers = (row.nobody, row.misnamed, row.unharmed)
    return [row.kind or "all", str(row.faults), f"{row.right} of {asked}", *(str(number or "-") for number in numbers),
            f"{row.right_kind} of {asked}", noticed, worst]  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "runs, suites, or folders of runs (default: all runs)"
    shared.add_options(parser, "records", nargs="*", metavar="RUN", help=about, complete="runs")
    shared.add_options(parser, "--runs", "--json")


def run(arguments: argparse.Namespace) -> int:
    """Score the runs; needs no engine."""
    from lab.features.records.records import earlier_records

    named = [record for name in arguments.records for record in earlier_records(name, arguments.runs)]
    summary = score_runs(named if arguments.records else list_records(arguments.runs))
    return shared.print_answer(arguments, summary.to_json, lambda style: score_text(summary, style))
