"""What TORCH_DISTRIBUTED_DEBUG=DETAIL says of ranks that called different collectives: who is the odd one out.

PyTorch then compares the collectives of all ranks before it runs one. Every rank raises, and tells what it was about
to do and what one other rank was (`torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from lab.verdict.facts import RankFacts

_RUNNING = re.compile(
    r"Rank (?P<rank>\d+) is running collective: CollectiveFingerPrint\((?:SequenceNumber=\d+, )?OpType=(?P<op>\w+)"
    r"(?:, TensorShape=(?P<shape>\[[^\]]*\]))?(?:, TensorDtypes=(?P<dtype>\w+))?"
)
_OPS = {
    "ALLGATHER": "all_gather",
    "ALLREDUCE": "all_reduce",
    "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all_single",
    "REDUCE_SCATTER": "reduce_scatter",
    "_ALLGATHER_BASE": "all_gather_into_tensor",
    "_REDUCE_SCATTER_BASE": "reduce_scatter_tensor",
}
_DTYPES = {
    "BFloat16": "bfloat16",
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "Int": "int32",
    "Long": "int64",
}


@dataclass(frozen=True)
class OddOne:
    """The rank whose collective differs from that of most others."""

    rank: int
    call: str
    """What it called, such as `all_reduce of float64 [4]`."""
    others: str
    """What the others called."""


def find_odd_one(ranks: Iterable[RankFacts]) -> OddOne | None:
    """The odd one out, from what the ranks raised; None where nobody was told, or where most do not agree."""
    calls = {
        int(match["rank"]): _call(match["op"], match["shape"], match["dtype"])
        for rank in ranks
        for match in _RUNNING.finditer(rank.error)
    }
    if not calls:
        return None
    common, count = Counter(calls.values()).most_common(1)[0]
    odd = sorted(rank for rank, call in calls.items() if call != common)
    if not odd or 2 * count <= len(calls):
        return None
    return OddOne(odd[0], calls[odd[0]], common)


def _call(op: str, shape: str | None, dtype: str | None) -> str:
    what = _OPS.get(op, op.lower())
    return f"{what} of {_DTYPES.get(dtype, dtype.lower())} {shape or ''}".rstrip() if dtype else what
