"""How right diagnoses are, for a person: a line for each kind of fault, and every miss."""

from __future__ import annotations

from lab.features.score.score import Mark, Row, Score
from lab.report.style import Style
from lab.report.table import table_text
from lab.words import clip, format_duration, plural

_HEAD = ["fault", "faults", "right culprit", "nobody", "wrong", "unharmed", "right kind", "noticed after", "at most"]
_LONGEST_REASON = 200


def score_text(found: Score, style: Style) -> str:
    """The table, and below it what was missed, with the reason that was given."""
    if not found.marks:
        return "nothing was broken on purpose in these runs"
    lines = [table_text(_HEAD, [_cells(row) for row in found.rows], style)]
    accused = found.rows[-1].accused
    lines.append(f"{plural(found.runs, 'run')}; innocent accused: {accused or 'none'}")
    for mark in found.misses:
        lines += [f"{style.paint('✘', 'red')} {mark.run}: {_miss(mark)}", f"    {clip(mark.reason, _LONGEST_REASON)}"]
    return "\n".join(lines)


def _cells(row: Row) -> list[str]:
    asked = row.faults - row.unharmed
    noticed = f"{format_duration(row.median_s)}" if row.median_s is not None else "-"
    if row.detected < asked and row.detected:
        noticed += f" ({row.detected} of {asked})"
    worst = format_duration(row.worst_s) if row.worst_s is not None else "-"
    numbers = (row.nobody, row.wrong, row.unharmed)
    return [row.kind or "all", str(row.faults), f"{row.right} of {asked}", *(str(number or "-") for number in numbers),
            f"{row.right_kind} of {asked}", noticed, worst]  # fmt: skip


def _miss(mark: Mark) -> str:
    if mark.culprit == "right":
        return f"{mark.fault}: the right one was named, for something else"
    return f"{mark.fault}: " + (f"named {mark.accused}" if mark.accused else "named nobody")
