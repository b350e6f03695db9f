"""The end of what each rank printed, for whoever has only the report of a failure."""

from __future__ import annotations

import re
from pathlib import Path

from lab.features.suite.reports import rarest_first
from lab.record.record_files import open_log
from lab.record.result import RankResult, Result
from lab.words import clip, name_ranks, plural

_LINES = 8
"""Of each rank."""
_LONGEST_LINE = 300
_TAIL_BYTES = 16384
_TRACEBACK = re.compile(r"(\[rank\d+\]: )?Traceback \(most recent call last\):$")
"""As Python begins one, and as torch does."""


def last_lines_text(result: Result) -> str:
    """The last lines of each rank, of a traceback its last; the one that the verdict shows is left out."""
    told = {result.culprit.rank} if result.culprit is not None and result.culprit.traceback else set()
    ranks = [*result.parents, *(rank for rank in result.ranks if rank.parent is None)]
    nodes = {rank.rank: rank.node for rank in ranks}
    last = [(rank.rank, lines) for rank in ranks if (lines := _last(rank, without_traceback=rank.rank in told))]
    shown = rarest_first(last)
    parts = list[str]()
    for numbers, text in shown:
        alike = f", as {name_ranks(numbers[1:])}" if len(numbers) > 1 else ""
        parts.append(f"  rank {numbers[0]} on {nodes[numbers[0]]} printed last{alike}:")
        parts += [f"  │ {line}" for line in text]
    left = len(last) - sum(len(numbers) for numbers, _ in shown)
    if left:
        parts.append(f"  and {plural(left, 'rank')} more: lab logs --run {result.run}")
    return "\n".join(parts)


def _last(rank: RankResult, *, without_traceback: bool) -> list[str]:
    lines = _tail(rank.log_path)
    begin = next((at for at in reversed(range(len(lines))) if _TRACEBACK.match(lines[at])), None)
    if begin is not None:
        lines = [*lines[:begin], *([] if without_traceback else lines[-1:])]
    return [clip(line, _LONGEST_LINE) for line in lines[-_LINES:]]


def _tail(log: Path | None) -> list[str]:
    if log is None:
        return []
    try:
        with open_log(log) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    lines = text.rstrip().split("\n")
    return [line.rstrip() for line in lines[1 if size > _TAIL_BYTES else 0 :]] if text.strip() else []
