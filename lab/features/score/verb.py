"""`lab score`: how right the diagnoses of many runs are in which something was broken on purpose."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import chain
from operator import attrgetter
from statistics import median
from typing import Any

from lab.cli import arguments as shared
from lab.cli.arguments import print_answer
from lab.features.faults.detection import Injected, find_injected
from lab.features.faults.kinds import key_of
from lab.frozen import Frozen
from lab.record.read import Record
from lab.record.result import Culprit, Result
from lab.report.style import Style
from lab.report.table import table_text
from lab.words import clip_end, format_count, format_duration

_TELLING = ("cut_off", "connection_reset", "rendezvous", "slow_link", "nonfinite", "outlier", "straggler", "diverged",
            "wrong_result")  # fmt: skip
"""Findings that say what was broken where nobody is the culprit."""


class Mark(Frozen):
    """How right the diagnosis of one run was, of one fault in it."""

    run: str
    kind: str
    fault: str
    culprit: str
    """`right`, `wrong`, `nobody`, or `unharmed`: the run ended well all the same, and nobody was named."""
    right_kind: bool
    detected_s: float | None
    """How long after it was in force something showed it; None: nothing did."""
    accused: str = ""
    """The innocent that was named."""
    reason: str = ""
    """The reason of the verdict."""

    @property
    def missed(self) -> bool:
        """Whether something of it is not right."""
        return self.culprit in ("wrong", "nobody") or (self.culprit == "right" and not self.right_kind)


class Row(Frozen):
    """The marks of all faults of one kind."""

    kind: str
    faults: int
    right: int
    nobody: int
    wrong: int
    unharmed: int
    right_kind: int
    detected: int
    median_s: float | None
    worst_s: float | None
    accused: int


def mark_run(record: Record) -> list[Mark]:
    """Hold the diagnosis of a run against what was broken in it; nothing where nothing was.

    A run has one culprit: where it is that of one fault, nothing is asked of the others, and where it is nobody's the
    first fault has been missed.
    """
    injected, result = find_injected(record), record.result()
    if not injected or result.exit_code == 130:
        return []
    named = result.culprit or _first_told(record)
    if named is not None and named.who:
        right = [one for one in injected if one.names(named.rank, named.node, named.link)]
    else:
        right = [one for one in injected if not one.alone and named is not None and named.cause in one.what.shown_as]
    return [_mark(one, named, record, result, right=bool(right)) for one in right or injected[:1]]


def _first_told(record: Record) -> Culprit | None:
    """What the explanation finds first that tells of something, where the verdict has no culprit."""
    from lab.diagnosis.explain import explain

    for finding in explain(record).findings:
        if finding.kind in _TELLING:
            rank = finding.ranks[0] if finding.ranks else None
            node = record.workers().get(rank, "") if rank is not None else ""
            return Culprit(rank=rank, node=node, link=finding.link, cause=finding.kind)
    return None


def _mark(one: Injected, named: Culprit | None, record: Record, result: Result, *, right: bool) -> Mark:
    broke = any(rank.stopped or rank.error or rank.signal for rank in result.ranks)
    well = result.verdict in ("passed", "failed") and result.culprit is None and not (broke or result.unmet_by_script)
    accused = "" if right or named is None else named.who if named.rank is None else f"rank {named.rank}"
    after_s = one.detection.after_s
    return Mark(
        run=record.run,
        kind=key_of(type(one.what)),
        fault=one.detection.fault,
        culprit="right" if right else "wrong" if accused else "unharmed" if well else "nobody",
        right_kind=right and named is not None and named.cause in one.what.shown_as,
        detected_s=None if after_s is None else round(after_s, 6),
        accused=accused,
        reason=result.reason,
    )


class Score(Frozen):
    """The marks of many runs."""

    runs: int
    """In which something was broken."""
    rows: tuple[Row, ...]
    """By kind of fault; the last one, of no kind, is that of all."""
    marks: tuple[Mark, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "misses": [asdict(mark) for mark in self.marks if mark.missed]}


def score(records: Iterable[Record]) -> Score:
    """Hold the diagnoses of many runs against what was broken in them."""
    by_run = [*filter(None, map(mark_run, records))]
    marks = [*chain(*by_run)]
    kinds = sorted({mark.kind for mark in marks})
    rows = [_row(kind, [mark for mark in marks if mark.kind == kind]) for kind in kinds]
    return Score(runs=len(by_run), rows=(*rows, _row("", marks)), marks=tuple(marks))


def _row(kind: str, marks: Sequence[Mark]) -> Row:
    times = [mark.detected_s for mark in marks if mark.detected_s is not None and mark.culprit != "unharmed"]
    culprits = [mark.culprit for mark in marks]
    return Row(
        kind=kind,
        faults=len(marks),
        **{name: culprits.count(name) for name in ("right", "nobody", "wrong", "unharmed")},
        right_kind=sum(mark.right_kind for mark in marks),
        detected=len(times),
        median_s=median(times) if times else None,
        worst_s=max(times, default=None),
        accused=sum(bool(mark.accused) for mark in marks),
    )


_HEAD = ["fault", "faults", "right culprit", "nobody", "wrong", "unharmed", "right kind", "noticed after", "at most"]
_LONGEST_REASON = 200


def score_text(found: Score, style: Style) -> str:
    """The table, and below it what was missed, with the reason that was given."""
    if not found.marks:
        return "nothing was broken on purpose in these runs"
    lines = [table_text(_HEAD, [_cells(row) for row in found.rows], style)]
    accused = found.rows[-1].accused
    lines.append(f"{format_count(found.runs, 'run')}; innocent accused: {accused or 'none'}")
    for mark in filter(attrgetter("missed"), found.marks):
        named = f"named {mark.accused}" if mark.accused else "named nobody"
        what = "the right one was named, for something else" if mark.culprit == "right" else named
        lines.append(f"{style.paint('✘', 'red')} {mark.run}: {mark.fault}: {what}")
        lines.append(f"    {clip_end(mark.reason, _LONGEST_REASON)}")
    return "\n".join(lines)


def _cells(row: Row) -> list[str]:
    asked = row.faults - row.unharmed
    noticed, worst = ("-" if one is None else format_duration(one) for one in (row.median_s, row.worst_s))
    if 0 < row.detected < asked:
        noticed += f" ({row.detected} of {asked})"
    numbers = (row.nobody, row.wrong, row.unharmed)
    return [row.kind or "all", str(row.faults), f"{row.right} of {asked}", *(str(number or "-") for number in numbers),
            f"{row.right_kind} of {asked}", noticed, worst]  # fmt: skip


_HOWTO = """What was broken is read from the record of each run, and held against its verdict, which never sees that.

  lab score                        all runs here
  lab score .lab/runs other/runs   runs in these folders
  lab score 20261121-kill          one run

right culprit: the rank or node that it was done to was named. right kind: for something that such a fault leads to.
unharmed: the run ended well all the same, and nobody was named. noticed after: the median time until the first fact
that showed it: an end, a loss, a time-out, data that nobody acknowledged."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _HOWTO
    about = "runs, suites or folders of runs (default: all runs)"
    shared.add_options(parser, "records", nargs="*", metavar="RUN", help=about, complete="runs")
    shared.add_options(parser, "--runs", "--json")


def run(arguments: argparse.Namespace) -> int:
    """Score them; needs no engine."""
    from lab.features.records.records import earlier_records
    from lab.record.read import list_records

    named = [record for name in arguments.records for record in earlier_records(name, arguments.runs)]
    found = score(named if arguments.records else list_records(arguments.runs))
    return print_answer(arguments, found.to_json, lambda style: score_text(found, style))
