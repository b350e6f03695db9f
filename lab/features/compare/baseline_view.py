"""Runs held against earlier ones, for a person."""

from __future__ import annotations

from statistics import median

from lab.features.compare.baseline import ENOUGH, Baseline, CaseChange
from lab.report.style import Style
from lab.words import format_bytes, format_duration, listing, plural

_MOST_CHANGES = 12
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
