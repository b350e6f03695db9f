"""One small step of each operation with values that are right, for tests of pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lab.trace.read import read_trace
from lab.trace.steps import Step, match_steps
from tests.traces import TraceMaker

Values = Sequence[Sequence[Any]]
W = 3
RANKS = range(W)


def one_step(
    folder: Path,
    op: str,
    before: Callable[[int], Values],
    after: Callable[[int], Values | None],
    *,
    world_size: int = W,
    absent: Sequence[int] = (),
    **fields: Any,
) -> Step:
    """A collective of all ranks but the absent ones; `after` gives None for a rank that never finished."""
    maker = TraceMaker(folder / "run", world_size)
    for rank in range(world_size):
        if rank not in absent:
            outputs = after(rank)
            maker.call(rank, op, 10 + rank, None if outputs is None else 20, before(rank), outputs, **fields)
    return steps_of(maker)[0]


def steps_of(maker: TraceMaker) -> list[Step]:
    """What was made, matched."""
    return match_steps(read_trace(maker.record()))


def message(folder: Path, *, received: bool = True) -> Step:
    """Rank 0 sends two numbers to rank 2."""
    maker = TraceMaker(folder / "run", W)
    maker.call(0, "send", 10, 20, [[1.0, 2.0]], peer=2, tag=7)
    if received:
        maker.call(2, "recv", 12, 20, [], [[1.0, 2.0]], peer=0, tag=7)
    return steps_of(maker)[0]


def uneven_exchange(folder: Path) -> Step:
    """all_to_all_single: everybody sends i + 1 elements to rank i."""
    maker = TraceMaker(folder / "run", W)
    for rank in RANKS:
        sent = [10 * rank + i for i in RANKS for _ in range(i + 1)]
        got = [10 * i + rank for i in RANKS for _ in range(rank + 1)]
        split = [[rank + 1] * W, [i + 1 for i in RANKS]]
        maker.call(rank, "all_to_all_single", 10, 20, [sent], [got], dtype="int64", split=split)
    return steps_of(maker)[0]


EXAMPLES: dict[str, Callable[[Path], Step]] = {
    "broadcast": lambda f: one_step(f, "broadcast", lambda r: [[float(r)]], lambda _: [[1.0]], root=1),
    "all_reduce": lambda f: one_step(
        f, "all_reduce", lambda r: [[r + 0.5, 2.0]], lambda _: [[4.5, 6.0]], red="SUM", at="train.py:7"
    ),
    "reduce": lambda f: one_step(
        f, "reduce", lambda r: [[r]], lambda r: [[3 if r == 2 else 9]], red="SUM", root=2, dtype="int64"
    ),
    "all_gather": lambda f: one_step(
        f, "all_gather", lambda r: [[r, -r]], lambda _: [[i, -i] for i in RANKS], dtype="int64"
    ),
    "all_gather_into_tensor": lambda f: one_step(
        f, "all_gather_into_tensor", lambda r: [[r, -r]], lambda _: [[0, 0, 1, -1, 2, -2]], dtype="int64"
    ),
    "gather": lambda f: one_step(
        f, "gather", lambda r: [[r]], lambda r: [[i] for i in RANKS] if r == 0 else [], root=0, dtype="int64"
    ),
    "scatter": lambda f: one_step(
        f, "scatter", lambda r: [[10 * i] for i in RANKS] if r == 0 else [], lambda r: [[10 * r]], root=0, dtype="int64"
    ),
    "reduce_scatter": lambda f: one_step(
        f, "reduce_scatter", lambda r: [[r + i] for i in RANKS], lambda r: [[2 + r]], red="MAX", dtype="int64"
    ),
    "reduce_scatter_tensor": lambda f: one_step(
        f, "reduce_scatter_tensor", lambda r: [[r, r, r]], lambda _: [[1.0]], red="AVG", dtype="float32"
    ),
    "all_to_all": lambda f: one_step(
        f, "all_to_all", lambda r: [[10 * r + i] for i in RANKS], lambda r: [[10 * i + r] for i in RANKS], dtype="int64"
    ),
    "all_to_all_single": uneven_exchange,
    "barrier": lambda f: one_step(f, "barrier", lambda _: [], lambda _: []),
    "send": message,
}

BROKEN: dict[str, Callable[[Path], Step]] = {
    "wrong_element": lambda f: one_step(
        f, "all_reduce", lambda r: [[float(r), r + 2.0]], lambda r: [[3.0, 9.0 if r else 2.0]], red="SUM"
    ),
    "never_entered": lambda f: one_step(
        f, "all_reduce", lambda r: [[float(r)]], lambda r: [[1.0]] if r == 0 else None, red="SUM", absent=[2]
    ),
    "never_received": lambda f: message(f, received=False),
    "barrier_in_vain": lambda f: one_step(f, "barrier", lambda _: [], lambda _: None, absent=[1]),
}
