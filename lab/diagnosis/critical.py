"""What the length of a run came from: its critical path in a sentence."""

from __future__ import annotations

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.finding import Finding
from lab.trace.critical import Part, from_new_group, parts_of
from lab.words import format_duration, listing

_MOST_PARTS = 3
_LEAST_SHARE = 0.05


def find_critical_path(evidence: Evidence) -> list[Finding]:
    """The largest parts of the critical path; nothing where it is not known."""
    path = evidence.critical_path
    parts = parts_of(path)
    if not parts:
        return []
    told = [part for part in parts[:_MOST_PARTS] if part.share >= _LEAST_SHARE] or parts[:1]
    took = path[-1].end - path[0].begin
    since = ", from the last new_group on" if from_new_group(path, evidence.trace) else ""
    sentence = f"The critical path{since}: of {format_duration(took)}, {listing(map(_told, told))}."
    lines = tuple(dict.fromkeys(part.source for part in told if part.source))
    ranks = tuple(sorted({piece.rank for piece in path}))
    return [Finding(kind="time", sentence=sentence, others=ranks, lines=lines, seconds=round(took, 6))]


def _told(part: Part) -> str:
    return f"{part.share:.0%} was {describe_part(part)}"


def describe_part(part: Part) -> str:
    """`rank 1's own work before all_reduce at train.py:12`, `communication in all_reduce at train.py:12`."""
    place = f"{part.op}{f' at {part.source}' if part.source else ''}"
    if part.rank is None:
        return f"communication in {place}"
    return f"rank {part.rank}'s own work {f'before {place}' if part.op else 'after its last call'}"
