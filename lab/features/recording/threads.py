"""Judge ranks that are threads of one process: by the stacks of the threads, because they share one trace."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lab.diagnosis.evidence import Judgement
from lab.record.result import Culprit
from lab.words import name_ranks

_THREAD = re.compile(r"(?m)^(?:Current thread|Thread) 0x([0-9a-f]+)[^\n]*\n((?:  File [^\n]*\n?)*)")
_OWN_LINE = re.compile(r'File "/run/work/([^"]+)", line (\d+) in')
_ANY_LINE = re.compile(r'File "([^"]+)", line (\d+) in')
_OPERATION = re.compile(r'/torch/distributed/distributed_c10d\.py", line \d+ in (\w+)')
_WAITS = "/multi_threaded_pg.py"
"""PyTorch's groups whose ranks are threads."""


def judge_threads(stack: str, ranks: Mapping[int, int], world_size: int, after: str) -> Judgement:
    """Return which ranks waited and which one they waited for.

    Args:
        stack: the stacks of all threads of the process.
        ranks: ranks by the identifiers of threads.
        world_size: number of ranks.
        after: beginning of the reason.
    """
    stacks = {ranks[ident]: text for ident, text in _threads(stack) if ident in ranks}
    waiting = {rank: text for rank, text in stacks.items() if _WAITS in text}
    parts, culprit = list[str](), None
    absent = {rank: text for rank, text in stacks.items() if rank not in waiting}
    ended = [rank for rank in range(world_size) if rank not in stacks]
    by_place: dict[str, list[int]] = {}
    for rank, text in absent.items():
        by_place.setdefault(f"was at {_line(text)}", []).append(rank)
    for rank in ended:
        by_place.setdefault("had ended", []).append(rank)
    for rank, text in waiting.items():
        operation = _OPERATION.search(text)
        what = f"waited in {operation.group(1)}" if operation else "waited"
        by_place.setdefault(f"{what} at {_line(text)}", []).append(rank)
    parts = [f"{name_ranks(those)} {place}" for place, those in by_place.items()]
    if waiting and len(absent) + len(ended) == 1:
        (rank,) = [*absent, *ended]
        error = f"was at {_line(absent[rank])}" if rank in absent else "ended while others waited for it"
        culprit = Culprit(rank=rank, error=error, traceback=absent.get(rank, ""))
    return Judgement(verdict="hung", reason=f"{after}: {'; '.join(parts)}", culprit=culprit)


def _threads(stack: str) -> list[tuple[int, str]]:
    return [(int(match.group(1), 16), match.group(2)) for match in _THREAD.finditer(stack)]


def _line(stack: str) -> str:
    """Return the innermost line of the user's code in a stack, or else the innermost line."""
    match = _OWN_LINE.search(stack) or _ANY_LINE.search(stack)
    return f"{match.group(1)}:{match.group(2)}" if match else "an unknown line"
