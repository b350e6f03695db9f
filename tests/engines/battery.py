"""What `scripts/battery.py` calls: every operation, computed without torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

BATTERY = (Path(__file__).parent / "scripts" / "battery.py").read_text().splitlines()
ANY = object()
"""In the place of values that are not looked at."""


@dataclass
class Expected:
    """A call that the battery makes."""

    label: str
    """The comment at the end of its line."""
    op: str
    before: Any = ANY
    """Values of each tensor that goes in."""
    after: Any = ANY
    """Values of each tensor that comes out."""
    more: dict[str, Any] = field(default_factory=dict)
    """What else is on record."""

    @property
    def source(self) -> str:
        [number] = [n for n, line in enumerate(BATTERY, 1) if line.endswith(f"  # {self.label}")]
        return f"battery.py:{number}"


def full(value: float, count: int = 4) -> list[float]:
    return [float(value)] * count


def expected_calls(rank: int) -> list[Expected]:
    """What a rank of three calls in the battery, in order, computed without torch."""
    everybody, sizes = range(3), [1, 2, 3]
    pairs = [full(i, 2) for i in everybody]
    mine = sizes[rank]
    first = sum(sizes[:rank])
    calls = [
        Expected("all_reduce", "all_reduce", [full(rank)], [full(3)], {"reduce_op": "SUM", "bytes_in": 16}),
        Expected("all_reduce async", "all_reduce", [full(rank)], [full(2)], {"reduce_op": "MAX", "asynchronous": True}),
        Expected("all_reduce future", "all_reduce", [full(rank + 1)], [full(6)], {"reduce_op": "PRODUCT"}),
        Expected("broadcast", "broadcast", [full(rank)], [full(1)], {"root": 1, "asynchronous": False}),
        Expected("reduce", "reduce", [full(rank)], [full(3)] if rank == 2 else ANY, {"root": 2, "reduce_op": "SUM"}),
        Expected("all_gather", "all_gather", [full(rank, 2)], pairs, {"bytes_in": 8, "bytes_out": 24}),
        Expected("all_gather_into_tensor", "all_gather_into_tensor", [full(rank, 2)], [[*chain(*pairs)]]),
        Expected("gather", "gather", [full(rank, 2)], pairs if rank == 1 else [], {"root": 1}),
        Expected(
            "scatter", "scatter", [full(10 * i, 2) for i in everybody] if rank == 2 else [], [full(10 * rank, 2)],
            {"root": 2, "bytes_out": 8},
        ),
        Expected("reduce_scatter", "reduce_scatter", [full(rank + i, 2) for i in everybody], [full(3 + 3 * rank, 2)]),
        Expected(
            "reduce_scatter_tensor", "reduce_scatter_tensor", [[*chain(*(full(rank + i, 2) for i in everybody))]],
            [full(3 + 3 * rank, 2)], {"reduce_op": "SUM", "bytes_in": 24, "bytes_out": 8},
        ),
        Expected(
            "all_to_all", "all_to_all", [full(10 * rank + i, 2) for i in everybody],
            [full(10 * i + rank, 2) for i in everybody],
        ),
        Expected(
            "all_to_all_single", "all_to_all_single", [[10.0 * rank + i for i in everybody]],
            [[10.0 * i + rank for i in everybody]], {"splits": None},
        ),
        Expected(
            "all_to_all_single split", "all_to_all_single", [[float(i) for i in range(6)]],
            [[float(first + i) for i in range(mine)] * 3], {"splits": ((mine,) * 3, (1, 2, 3))},
        ),
    ]  # fmt: skip
    if rank == 0:
        calls += [
            Expected("send", "send", [full(7)], [], {"peer": 1, "tag": 3, "seq": None}),
            Expected("isend", "send", [full(8)], [], {"peer": 1, "tag": 0}),
        ]
    if rank == 1:
        calls += [
            Expected("recv", "recv", [], [full(7)], {"peer": 0, "tag": 3, "seq": None, "bytes_out": 16}),
            Expected("recv from any", "recv", [], [full(8)], {"peer": 0}),
        ]
    calls += [
        Expected("batch", "send", [full(rank)], [], {"peer": (rank + 1) % 3}),
        Expected("batch", "recv", [], [full((rank - 1) % 3)], {"peer": (rank - 1) % 3}),
        Expected("barrier", "barrier", [], [], {"bytes_in": 0}),
        Expected("monitored_barrier", "monitored_barrier", [], []),
        Expected("all_gather_object", "all_gather", more={"bytes_in": 8}),
        Expected("all_gather_object", "all_gather"),
        Expected("coalesced", "all_reduce_coalesced", [full(rank, 1), full(2 * rank, 3)], [full(3, 1), full(6, 3)]),
        Expected(
            "all_reduce_coalesced", "all_reduce_coalesced", [full(rank, 1), full(2 * rank, 3)], [full(3, 1), full(6, 3)]
        ),
        Expected("functional", "all_reduce", [full(rank)], [full(3)]),
    ]
    if rank > 0:
        calls += [
            Expected("broadcast in a pair", "broadcast", [full(rank)], [full(2)], {"root": 2, "seq": 1}),
            Expected("all_reduce in a pair", "all_reduce", [full(rank)], [full(3)], {"seq": 2}),
        ]
    else:
        calls.append(Expected("all_reduce alone", "all_reduce", [full(0)], [full(0)], {"seq": 1}))
    numbers = [n * (rank + 1) for n in (1, -2, 2**40)]
    endless = [pytest.approx(0.1), "nan", "inf", "-inf"]
    table = [float(4 * row + column) for column in range(4) for row in range(3)]
    return [
        *calls,
        Expected("integers", "broadcast", [numbers], [[1, -2, 2**40]], {"bytes_in": 24}),
        Expected("booleans", "broadcast", [[True, False]], [[True, False]], {"bytes_in": 2}),
        Expected("bfloat16", "broadcast", [[1.5, -2.25]], [[1.5, -2.25]], {"bytes_in": 4}),
        Expected("doubles", "broadcast", [[0.1, 1e300]], [[0.1, 1e300]], {"bytes_in": 16}),
        Expected("not finite", "broadcast", [endless], [endless]),
        Expected("complex", "broadcast", [[1.5, -2.0, 0.0, 3.0]], [[1.5, -2.0, 0.0, 3.0]], {"bytes_in": 16}),
        Expected("transposed", "broadcast", [table], [table]),
        Expected("summary", "broadcast", [None], [None], {"bytes_in": 4000}),
        Expected("sample", "broadcast", [None], [None], {"bytes_in": 40_000}),
        Expected("nothing", "broadcast", [[]], [[]], {"bytes_in": 0}),
        Expected("sparse", "all_reduce", [None], [None]),
        Expected("last", "barrier"),
        Expected("refused", "all_reduce", [full(rank)], more={"state": "failed", "reduce_op": "BAND"}),
    ]
