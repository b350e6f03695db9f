"""Compare two runs: what they did, how they ended, and how they were set up, as data and as text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, Generic, NamedTuple, TypeVar

from lab.errors import RecordError
from lab.features.calls.changes import CallChange, Calls, align_calls, describe_changes
from lab.features.calls.snapshot import settled_calls, texts_of
from lab.features.compare.baseline import ENOUGH, Baseline, CaseChange
from lab.features.records.records import scenario_keys, scripts_of
from lab.features.traffic.traffic import summarize_operations
from lab.plan.plan import WorkerPlan
from lab.record.read import Record
from lab.record.record_files import read_beginning
from lab.record.result import Result
from lab.report.style import Style, spans_text, table_text
from lab.report.verdict import all_failed_alike
from lab.spec.keys import LAB_VARIABLES
from lab.trace.model import Call, Trace
from lab.trace.read import open_trace
from lab.trace.steps import Step, match_steps
from lab.words import clip_end, format_bytes, format_count, format_duration, format_value, group_pairs, join_words

V = TypeVar("V")


class Counterparts(NamedTuple):
    """Which calls of two runs correspond."""

    pairs: list[tuple[Call, Call]]
    removed: set[tuple[int, int]]
    """Rank and index of calls that only the first run made."""
    added: set[tuple[int, int]]
    """Rank and index of calls that only the second run made."""


def match_calls(traces: tuple[Trace, Trace]) -> Counterparts:
    """Match the calls of each rank in two runs; if world sizes differ, only those of rank 0."""
    matches = Counterparts([], set(), set())
    calls, texts = [settled_calls(trace) for trace in traces], _compared_calls(traces)
    for rank in sorted({*texts[0], *texts[1]}):
        for same, i1, i2, j1, j2 in align_calls(*(of.get(rank, ()) for of in texts)):
            ours, theirs = calls[0].get(rank, [])[i1:i2], calls[1].get(rank, [])[j1:j2]
            if same:
                matches.pairs.extend(zip(ours, theirs, strict=True))
            else:
                matches.removed.update((rank, call.index) for call in ours)
                matches.added.update((rank, call.index) for call in theirs)
    return matches


def _compared_calls(traces: tuple[Trace, Trace]) -> tuple[Calls, Calls]:
    """Return the calls of each rank in both runs; if world sizes differ, only those of rank 0."""
    before, after = map(texts_of, traces)
    per_rank = traces[0].world_size != traces[1].world_size
    return ({0: before.get(0, ())}, {0: after.get(0, ())}) if per_rank else (before, after)


_NOT_SETTINGS = frozenset({"name", "learn", "predict", "expect", "script", "nodes", "nproc_per_node", "env", "args"})
"""Scenario fields that are about the assessment of a run, or that its plan contains."""
_GIVEN = frozenset((*LAB_VARIABLES, "TORCHELASTIC_RUN_ID", "LAB_SHARED", "LAB_DATA", "LAB_TRACE"))
"""Environment variables that follow from the cluster, or that differ in each run."""
_PLAN = ("scenario", "engine", "nnodes", "nproc_per_node", "cold", "timeout_s")


@dataclass(frozen=True)
class Both(Generic[V]):
    """A value in both runs: of a setting, or an operation."""

    name: str
    before: V
    """None if the run does not have it."""
    after: V


Setting = Both[str | None]


def settings_changed(before: Record, after: Record, traces: tuple[Trace, Trace]) -> list[Setting]:
    """Return the differences in the setup of two runs, the most important first."""
    settings = [_settings(before, traces[0]), _settings(after, traces[1])]
    changed = [one for one in _side_by_side(settings) if one.before != one.after]
    return [*changed, *_scripts_changed(before, after)]


def _settings(record: Record, trace: Trace) -> dict[str, str]:
    plan = record.plan()
    first = next(iter(plan.workers), WorkerPlan(rank=0))
    settings = {name: getattr(plan, name) for name in _PLAN} | {"arguments": " ".join(first.argv[1:])}
    settings |= {f"env {name}": value for name, value in sorted(first.env.items()) if name not in _GIVEN}
    settings |= _flat({key: value for key, value in scenario_keys(record).items() if key not in _NOT_SETTINGS})
    settings["backends"] = ", ".join(sorted({group.backend for group in trace.groups.values()} - {""}))
    for name in ("torch", "recorder"):
        settings[name] = ", ".join(sorted({getattr(rank, name) for rank in trace.ranks.values()} - {""}))
    return {name: str(value) for name, value in settings.items() if value not in (None, "")}


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        path = f"{prefix}{name}"
        yield from _flat(value, f"{path} ") if isinstance(value, Mapping) else [(path, value)]


def _scripts_changed(before: Record, after: Record) -> list[Setting]:
    """Return the scripts and shipped files that differ, with the numbers of removed and added lines."""
    records = before, after
    mains = [Path(record.plan().script).name for record in records]
    others = {name for record in records for name in scripts_of(record)} - set(mains)
    changed = []
    for names in [mains, *([name, name] for name in sorted(others))]:
        texts = [*map(_lines, records, names)]
        if texts[0] != texts[1]:
            lines = [Counter(text or []) for text in texts]  # ignore the order: aligning lines can take very long
            counts = f"-{(lines[0] - lines[1]).total()} +{(lines[1] - lines[0]).total()} lines"
            sides = [None if text is None else name for text, name in zip(texts, names, strict=True)]
            changed.append(Setting(f"script ({counts})", *sides))
    return changed


def _lines(record: Record, name: str) -> list[str] | None:
    try:
        return read_beginning(record.path, name).splitlines() if name else None
    except OSError:
        return None


_DURATION = re.compile(r"\b\d[\d.]* (?:µs|ms|s)\b|\b\d+[hm] \d\d[ms]\b")
_LONGEST_NOTE = 1 << 10


def outcomes_changed(before: Result, after: Result) -> list[Setting]:
    """Return the differences in how two runs ended: verdict, cause apart from durations, notes, and files."""
    return [one for one in _side_by_side([_outcome(before), _outcome(after)]) if one.before != one.after]


def _outcome(result: Result) -> dict[str, str]:
    outcome: dict[str, str] = {"verdict": result.verdict}
    if not result.passed:
        culprit = result.culprit if all_failed_alike(result) else None  # which rank was first is chance
        outcome["cause"] = _DURATION.sub("…", f"every rank {culprit.error}" if culprit else result.reason)
    noted = (
        (name, (format_value(value, _LONGEST_NOTE), one.rank))
        for one in result.ranks
        for name, value in one.notes.items()
    )
    for name, pairs in group_pairs(noted).items():
        values = group_pairs(pairs)
        shared = len(values) == 1 and len(pairs) == len(result.ranks)
        texts = (value if shared else f"{value} (rank {spans_text(ranks)})" for value, ranks in values.items())
        outcome[f"note {name}"] = ", ".join(texts)
    return outcome | {f"file {one.path}": format_bytes(one.bytes) for one in result.outputs}


@dataclass(frozen=True, slots=True)
class Figures:
    """Numbers of one operation in one run."""

    count: int
    """Number of steps."""
    bytes: float
    """Logical bytes sent, by all ranks together; by one rank on average if world sizes differ."""
    median_s: float | None
    total_s: float
    """Seconds from the entry of the last rank to the exit of the last, summed over steps."""
    waited_s: float
    """Seconds in calls before all needed ranks had entered; for all ranks or one on average, like `bytes`."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side."""

    runs: tuple[str, str]
    world_sizes: tuple[int, int]
    calls: tuple[int, int]
    """Number of calls of all ranks."""
    span_s: tuple[float, float]
    """Seconds from the first line of the trace to the last."""
    settings: list[Setting]
    outcome: list[Setting]
    """How the second run ended differently."""
    sequence: list[CallChange]
    """How the calls of the second run differ."""
    operations: list[Both[Figures | None]]
    problems: list[str]

    @property
    def per_rank(self) -> bool:
        """Whether figures are averages of one rank."""
        return self.world_sizes[0] != self.world_sizes[1]

    @property
    def identical(self) -> bool:
        """Whether settings, outcome, calls, their order, and their bytes are the same; times never are."""
        counts = all(
            one.before and one.after and (one.before.count, one.before.bytes) == (one.after.count, one.after.bytes)
            for one in self.operations
        )
        return counts and not (self.settings or self.outcome or self.sequence or self.per_rank)

    def to_json(self) -> dict[str, Any]:
        """Return the data that `lab diff --json` prints."""
        data = {**asdict(self), "per_rank": self.per_rank, "identical": self.identical}
        return {**data, "operations": [{"op": one.pop("name"), **one} for one in data["operations"]]}


def compare_runs(before: Record, after: Record, traces: tuple[Trace, Trace]) -> Comparison:
    """Compare two runs with these traces."""
    steps, runs = [*map(match_steps, traces)], (before.run, after.run)
    world_sizes = traces[0].world_size, traces[1].world_size
    per_rank = world_sizes[0] != world_sizes[1]
    figures = [_figures(of, n if per_rank else 1) for of, n in zip(steps, world_sizes, strict=True)]
    return Comparison(
        runs=runs,
        world_sizes=world_sizes,
        calls=(len(traces[0].calls), len(traces[1].calls)),
        span_s=(traces[0].last, traces[1].last),
        settings=settings_changed(before, after, traces),
        outcome=outcomes_changed(before.result(), after.result()),
        sequence=_changed_calls(traces, before.run),
        operations=_side_by_side(figures),
        problems=[f"{run}: {problem}" for run, t in zip(runs, traces, strict=True) for problem in t.problems],
    )


def _changed_calls(traces: tuple[Trace, Trace], than: str, cut_off: Collection[int] = ()) -> list[CallChange]:
    """Return how the calls of the second run differ; of ranks that were cut off, only as far as both runs went."""
    before, after = _compared_calls(traces)
    calls = settled_calls(traces[1])
    after = {rank: of[: len(before.get(rank, ()))] if rank in cut_off else of for rank, of in after.items()}
    ended = dict.fromkeys(cut_off, False)
    return describe_changes(before, after, lambda rank, call: calls[rank][call].source, than=than, ended=ended)


def _side_by_side(sides: Sequence[Mapping[Any, V]]) -> list[Both[V | None]]:
    return [Both(name, *(side.get(name) for side in sides)) for name in dict.fromkeys(chain(*sides))]


def _figures(steps: Sequence[Step], ranks: int) -> dict[str, Figures]:
    return {
        row.op: Figures(row.count, (row.sent or 0) / ranks, row.median_s, row.total_s, row.waited_s / ranks)
        for row in summarize_operations(steps)
    }


_MOST_CHANGES = 12
_MOST_OUTCOMES = 4
_LONGEST_SIDE = 80
_MORE_OR_LESS = ("more", "less")
_NOTABLE = 1.2
"""Times that differ by less than this factor are normal variation."""


def diff_text(comparison: Comparison, style: Style) -> str:
    """Return what differs; for identical runs, one sentence."""
    before, after = comparison.runs
    if comparison.identical:
        each = f"{comparison.calls[0]} calls of {comparison.world_sizes[0]} ranks"
        spans = f"{format_duration(comparison.span_s[0])} and {format_duration(comparison.span_s[1])}"
        return f"{before} and {after} are the same: {each} in the same order, with the same bytes, in {spans}."
    parts = [f"{style.paint(f'- {before}', 'red')}\n{style.paint(f'+ {after}', 'green')}"]
    if comparison.per_rank:
        sizes = f"{comparison.world_sizes[0]} and {comparison.world_sizes[1]} ranks"
        parts.append(f"{sizes}: bytes and waiting are averages of one rank, the order of calls is that of rank 0")
    settings = [(one.name, one.before or "(not set)", one.after or "(not set)") for one in comparison.settings]
    parts.append(_listed("settings", settings, style) or "settings: the same")
    outcome = [(one.name, _clipped(one.before), _clipped(one.after)) for one in comparison.outcome]
    parts.append(_listed("outcome", outcome, style))
    calls = [f"  {line}" for line in _first([one.text for one in comparison.sequence])]
    parts.append("\n".join([style.paint("calls", "bold"), *calls]) if calls else "calls: the same in the same order")
    parts.append(table_text(*operation_rows(comparison), style) if comparison.operations else "")
    parts.append("\n".join(style.paint(problem, "yellow") for problem in comparison.problems))
    return "\n\n".join(filter(None, parts))


def summarize_changes(before: Record, after: Record) -> list[str]:
    """Return a line about how a run ended differently from an earlier one, and one about its calls, if they differ."""
    results = before.result(), after.result()
    parts = [
        f"another cause, before: {_clipped(one.before)}"
        if one.name == "cause"
        else f"{one.name} {_clipped(one.before)} → {_clipped(one.after)}".removeprefix("verdict ")
        for one in outcomes_changed(*results)
        if one.name != "cause" or (one.before and one.after)
    ]
    left = len(parts) - _MOST_OUTCOMES
    lines = ["; ".join([*parts[:_MOST_OUTCOMES], *([f"{left} more"] if left > 0 else [])])]
    with suppress(RecordError):  # a run has no trace
        cut_off = {rank.rank for result in results for rank in result.ranks if rank.exit_code != 0}
        traces = open_trace(before), open_trace(after)
        calls = [one.text for one in _changed_calls(traces, "the run before", cut_off)]
        hidden = f" (and {len(calls) - 1} more: lab diff {before.run} {after.run})" if len(calls) > 1 else ""
        lines += [text + hidden for text in calls[:1]]
    return [*filter(None, lines)]


def _clipped(side: str | None) -> str:
    return clip_end(side or "(none)", _LONGEST_SIDE)


def _first(lines: Sequence[str]) -> list[str]:
    left = len(lines) - _MOST_CHANGES
    return [*lines[:_MOST_CHANGES], *([f"and {left} more (`--json` has them all)"] if left > 0 else [])]


def _listed(title: str, rows: Iterable[Sequence[str]], style: Style) -> str:
    """Return a title with one line for each difference."""
    lines = [f"  {name}: {style.paint(one, 'red')} → {style.paint(other, 'green')}" for name, one, other in rows]
    return "\n".join([style.paint(title, "bold"), *lines]) if lines else ""


def operation_rows(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return a table, as header and rows, of what each operation did in both runs."""
    header = ["operation", "count", "bytes sent", "median", "total", "waited"]
    nothing = Figures(0, 0, None, 0, 0)
    rows = []
    for one in comparison.operations:
        before, after = one.before or nothing, one.after or nothing
        count = _changed(str(before.count), str(after.count))
        size = _changed(format_bytes(round(before.bytes)), format_bytes(round(after.bytes)))
        times = [_times(before.median_s, after.median_s), _times(before.total_s, after.total_s)]
        rows.append([one.name, count, size, *times, _times(before.waited_s, after.waited_s, _MORE_OR_LESS)])
    return header, rows


def _changed(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"


def _times(before: float | None, after: float | None, words: tuple[str, str] = ("slower", "faster")) -> str:
    text = f"{format_duration(before)} → {format_duration(after)}"
    if not before or not after:
        return format_duration(before) if before == after else text
    factor = max(before, after) / min(before, after)
    return text if factor < _NOTABLE else f"{text} ({factor:.3g}x {words[after < before]})"


_MOST_NEW = 5


def baseline_text(baseline: Baseline, style: Style) -> str:
    """Return what got slower, sends more, or makes other calls; unchanged cases are only counted."""
    lines = [style.paint(baseline_title(baseline), "bold")]
    for case in baseline.cases:
        if case.changed:
            sign = style.paint("✘", "red") if case.worse else style.paint("·", "yellow")
            lines.append(f"{sign} {style.paint(case.name, 'bold')}")
            lines += [f"    {line}" for line in change_lines(case)]
    return "\n".join(lines)


def baseline_title(baseline: Baseline) -> str:
    """Return `compared with main: 12 cases, 2 of them worse; not there before: ring on 3 x 1`."""
    worse = sum(case.worse for case in baseline.cases)
    counted = f"{format_count(len(baseline.cases), 'case')}, {worse or 'none'} of them worse"
    hidden = len(baseline.new) - _MOST_NEW
    shown = [*baseline.new[:_MOST_NEW], f"{hidden} more" if hidden > 0 else ""]
    new = f"; not there before: {join_words(shown)}" if baseline.new else ""
    return f"compared with {baseline.name}: {counted}{new}"


def change_lines(case: CaseChange) -> list[str]:
    """Return the differences of one case, one line each."""
    lines = [_speed(case)] if case.speed else []
    for one in case.increases:
        counts = f"{one.calls[0]} → {format_count(one.calls[1], 'time')}" if one.calls[0] != one.calls[1] else ""
        sizes = f"{format_bytes(one.bytes[0])} → {format_bytes(one.bytes[1])}" if one.bytes[0] != one.bytes[1] else ""
        lines.append(f"more of {one.op}: {', '.join(filter(None, (counts, sizes)))}")
    return [*lines, *_first(case.calls), *case.notes]


def _speed(case: CaseChange) -> str:
    before, after = case.times_s
    medians = f"{format_duration(median(before))} → {format_duration(median(after))}"
    runs = f"of {len(before)} and {format_count(len(after), 'run')}"
    if case.speed == "slower":
        return f"slower: {medians} (medians {runs}; the ranges do not overlap)"
    few = min(len(before), len(after)) < ENOUGH
    why = f"for a result, run each side {ENOUGH} times" if few else "the ranges overlap"
    return f"perhaps slower: {medians} (medians {runs}; {why})"
