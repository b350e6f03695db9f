"""Two runs side by side, and runs held against earlier ones, for a person."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import median

from lab.features.compare.baseline import ENOUGH, Baseline, CaseChange
from lab.features.compare.compare import Comparison, Figures, SequenceChange
from lab.report.style import Style
from lab.report.table import table_text
from lab.words import format_bytes, format_duration, listing, name_ranks, plural

_MOST_CHANGES = 12
_LONGEST_BLOCK = 8
_MOST_RANKS = 16
_MORE_OR_LESS = ("more", "less")
_NOTABLE = 1.2
"""Times that differ by less than this factor are what any two runs differ by."""


def diff_text(found: Comparison, style: Style) -> str:
    """What differs; of runs that did the same, one sentence."""
    before, after = found.runs
    if found.identical:
        each = f"{found.calls[0]} calls of {found.world_sizes[0]} ranks"
        spans = f"{format_duration(found.span_s[0])} and {format_duration(found.span_s[1])}"
        return f"{before} and {after} are the same: {each} in the same order, with the same bytes, in {spans}."
    parts = [f"{style.paint(f'- {before}', 'red')}\n{style.paint(f'+ {after}', 'green')}"]
    if found.per_rank:
        sizes = f"{found.world_sizes[0]} and {found.world_sizes[1]} ranks"
        parts.append(f"{sizes}: bytes and waiting are those of one rank on average, the order of calls is rank 0's")
    parts += [_settings(found, style), _sequence(found, style), _buckets(found, style)]
    parts += [_table(operation_rows(found), style), _waiting(found, style), _table(phase_rows(found), style)]
    parts += ["\n".join(style.paint(problem, "yellow") for problem in found.problems)]
    return "\n\n".join(part for part in parts if part)


def _settings(found: Comparison, style: Style) -> str:
    if not found.settings:
        return "settings: the same"
    lines = [style.paint("settings", "bold")]
    for one in found.settings:
        before, after = ("(not set)" if value is None else value for value in (one.before, one.after))
        lines.append(f"  {one.name}: {_painted(before, after, style)}")
    return "\n".join(lines)


def _painted(before: str, after: str, style: Style) -> str:
    return f"{style.paint(before, 'red')} → {style.paint(after, 'green')}"


def _sequence(found: Comparison, style: Style) -> str:
    if not found.sequence:
        return "calls: the same in the same order"
    lines = [style.paint("calls", "bold")]
    for one in found.sequence[:_MOST_CHANGES]:
        lines.append(f"  {style.paint(where_changed(one, found), 'dim')}")
        lines += [f"    {style.paint(f'- {line}', 'red')}" for line in block_lines(one.change.removed)]
        lines += [f"    {style.paint(f'+ {line}', 'green')}" for line in block_lines(one.change.added)]
    more = len(found.sequence) - _MOST_CHANGES
    if more > 0:
        lines.append(f"  and {more} more (`--json` has them all)")
    return "\n".join(lines)


def where_changed(one: SequenceChange, found: Comparison) -> str:
    """Whose calls changed, and where: `every rank, call 3, in backward, train.py:12`."""
    everybody = len(one.ranks) == min(found.world_sizes) and not found.per_rank
    who = "every rank" if everybody else name_ranks(one.ranks)
    place = f", call {one.change.before + 1}"
    place += f", in {one.phase}" if one.phase else ""
    place += f", {one.at}" if one.at else ""
    times = f"; {one.change.times} times" if one.change.times > 1 else ""
    return f"{who}{place}{times}"


def block_lines(calls: Sequence[str]) -> list[str]:
    """Calls as lines, those that repeat once; of many the first."""
    lines = []
    for text, same in groupby(calls):
        times = len(list(same))
        lines.append(text if times == 1 else f"{text} x{times}")
    more = len(lines) - _LONGEST_BLOCK
    return lines if more <= 0 else [*lines[:_LONGEST_BLOCK], f"… and {more} more"]


def _buckets(found: Comparison, style: Style) -> str:
    lines = [
        f"  module {one.module}: {_painted(_sizes(one.before), _sizes(one.after), style)}" for one in found.buckets
    ]
    return "\n".join([style.paint("DDP buckets, elements", "bold"), *lines]) if lines else ""


def _sizes(sizes: Sequence[int]) -> str:
    return f"{len(sizes)} ({', '.join(map(str, sizes[:_LONGEST_BLOCK]))}{', …' * (len(sizes) > _LONGEST_BLOCK)})"


Rows = tuple[list[str], list[list[str]]]
"""A table: its head, and its rows."""


def _table(rows: Rows, style: Style) -> str:
    return table_text(*rows, style) if rows[1] else ""


def operation_rows(found: Comparison) -> Rows:
    """What each operation did in both runs."""
    header = ["operation", "count", "bytes sent", "median", "total", "waited"]
    nothing = Figures(0, 0, None, 0, 0)
    rows = []
    for one in found.operations:
        before, after = one.before or nothing, one.after or nothing
        count = _changed(str(before.count), str(after.count))
        size = _changed(format_bytes(round(before.bytes)), format_bytes(round(after.bytes)))
        times = [_times(before.median_s, after.median_s), _times(before.total_s, after.total_s)]
        rows.append([one.op, count, size, *times, _times(before.waited_s, after.waited_s, _MORE_OR_LESS)])
    return header, rows


def waiting_rows(found: Comparison) -> Rows:
    """Whose time went into waiting for others; who waits least is who the others wait for."""
    waited = found.waiting if any(one.before or one.after for one in found.waiting) else []
    return ["rank", "waited for others"], [[str(o.rank), _times(o.before, o.after, _MORE_OR_LESS)] for o in waited]


def _waiting(found: Comparison, style: Style) -> str:
    header, rows = waiting_rows(found)
    text = _table((header, rows[:_MOST_RANKS]), style)
    more = len(rows) - _MOST_RANKS
    return text if more <= 0 else f"{text}\nand {more} more ranks (`--json` has them all)"


def phase_rows(found: Comparison) -> Rows:
    """How often ranks went through each phase, and how long it took."""
    rows = [
        [one.name, _changed(f"{one.before[0]:g}", f"{one.after[0]:g}"), _times(one.before[1], one.after[1])]
        for one in found.phases
    ]
    return ["phase", "times a rank", "median"], rows


def _changed(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"


def _times(before: float | None, after: float | None, words: tuple[str, str] = ("slower", "faster")) -> str:
    text = f"{format_duration(before)} → {format_duration(after)}"
    if not before or not after:
        return format_duration(before) if before == after else text
    factor = max(before, after) / min(before, after)
    if factor < _NOTABLE:
        return text
    return f"{text} ({factor:.3g}x {words[after < before]})"


_MOST_NEW = 5


def baseline_text(found: Baseline, style: Style) -> str:
    """What got slower, sends more, or is called otherwise; of cases that are as before, how many."""
    lines = [style.paint(baseline_title(found), "bold")]
    for case in found.cases:
        if case.changed:
            sign = style.paint("✘", "red") if case.worse else style.paint("·", "yellow")
            lines.append(f"{sign} {style.paint(case.name, 'bold')}")
            lines += [f"    {line}" for line in change_lines(case)]
    return "\n".join(lines)


def baseline_title(found: Baseline) -> str:
    """`compared with main: 12 cases, 2 of them worse; not there before: ring on 3 x 1`."""
    worse = sum(case.worse for case in found.cases)
    counted = f"{plural(len(found.cases), 'case')}, {worse or 'none'} of them worse"
    shown = [*found.new[:_MOST_NEW], f"{len(found.new) - _MOST_NEW} more" if len(found.new) > _MOST_NEW else ""]
    new = f"; not there before: {listing(shown)}" if found.new else ""
    return f"compared with {found.name}: {counted}{new}"


def change_lines(case: CaseChange) -> list[str]:
    """What there is to say of one case, a line each."""
    lines = [_speed(case)] if case.speed else []
    for one in case.more:
        counts = f"{one.calls[0]} → {plural(one.calls[1], 'time')}" if one.calls[0] != one.calls[1] else ""
        sizes = f"{format_bytes(one.bytes[0])} → {format_bytes(one.bytes[1])}" if one.bytes[0] != one.bytes[1] else ""
        lines.append(f"more of {one.op}: {', '.join(filter(None, (counts, sizes)))}")
    lines += case.calls[:_MOST_CHANGES]
    if len(case.calls) > _MOST_CHANGES:
        lines.append(f"and {len(case.calls) - _MOST_CHANGES} more (`--json` has them all)")
    return [*lines, *case.notes]


def _speed(case: CaseChange) -> str:
    before, after = case.times_s
    medians = f"{format_duration(median(before))} → {format_duration(median(after))}"
    runs = f"of {len(before)} and {plural(len(after), 'run')}"
    if case.speed == "slower":
        return f"slower: {medians} (medians {runs}, which lie apart)"
    few = min(len(before), len(after)) < ENOUGH
    why = f"{ENOUGH} on each side would tell more" if few else "they overlap"
    return f"perhaps slower: {medians} (medians {runs}; {why})"
