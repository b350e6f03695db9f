"""What the errors of torch.distributed say of other ranks: that one was lost, or that one called something else.

With TORCH_DISTRIBUTED_DEBUG=DETAIL PyTorch compares the collectives of all ranks before it runs one. Every rank then
raises, and tells what it was about to do and what one other rank was
(`torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from lab.diagnosis.finding import majority
from lab.diagnosis.rank_facts import RankFacts
from lab.operations import OPERATIONS

_PEER_LOST = re.compile(
    r"Connection closed by peer|Connection reset by peer|Connection refused|Broken pipe|Read error|pair closure"
    r"|recvValue failed|recvVector failed|sendBytes failed|failed to recv, got 0 bytes|connectFullMesh|DistNetworkError"
    r"|socket (?:was )?closed|client socket has timed out|timed out (?:waiting|after)|wait timeout"
    r"|connection abort|remote process (?:has )?(?:exited|terminated)|ncclRemoteError|failed to pass monitoredBarrier",
    re.IGNORECASE,
)
"""What torch.distributed says in a rank that failed because another one did."""
_GAVE_UP = re.compile(r"timed out|wait timeout|failed to pass monitoredBarrier", re.IGNORECASE)
"""What it says in a rank that waited for as long as it was told to."""
_TIME_OUT = re.compile(r"tim(?:ed|e)[ -]?out|^SystemExit", re.IGNORECASE)
_BY_TORCH = re.compile(r"^(?:RuntimeError|torch\.distributed\.[\w.]+): ", re.MULTILINE)
"""How the text of an exception begins that torch.distributed raises; a script's own broken pipe is no RuntimeError."""
_TRACEBACK_START = "Traceback (most recent call last):\n"
_RUNNING = re.compile(
    r"Rank (?P<rank>\d+) is running collective: CollectiveFingerPrint\((?:SequenceNumber=\d+, )?OpType=(?P<op>\w+)"
    r"(?:, TensorShape=(?P<shape>\[[^\]]*\]))?(?:, TensorDtypes=(?P<dtype>\w+))?"
)
_DTYPES = {
    "BFloat16": "bfloat16",
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "Int": "int32",
    "Long": "int64",
}


def lost_a_peer(rank: RankFacts) -> bool:
    """Whether a rank failed because it lost a peer, even if it raised something else because of that."""
    for text in (rank.error, *rank.traceback.split(_TRACEBACK_START)):
        raised = _BY_TORCH.search(text)
        if raised and _PEER_LOST.search(text, raised.end()):
            return True
    return False


def gave_up(rank: RankFacts) -> bool:
    """Whether a rank that lost a peer had only waited too long for it."""
    return lost_a_peer(rank) and _GAVE_UP.search(rank.error) is not None


def gave_way(rank: RankFacts) -> bool:
    """Whether a rank ended in a way in which scripts end that have waited too long: by its own exit, or a time-out."""
    return (rank.raised is None and not rank.signal) or _TIME_OUT.search(rank.error) is not None


def is_loss(error: str) -> bool:
    """Whether a call that failed with this text had lost a peer, and was not refused."""
    return _PEER_LOST.search(error) is not None


def failed_in_torch(rank: RankFacts) -> bool:
    """Whether a rank failed inside torch.distributed: what a peer brought there may be why."""
    return rank.signal == "SIGABRT" or (_BY_TORCH.search(rank.error) is not None and not rank.out_of_memory)


class OddOne(NamedTuple):
    """The rank whose collective differs from that of most others; what they called: `all_reduce of float64 [4]`."""

    rank: int
    call: str
    others: str


def find_odd_one(ranks: Iterable[RankFacts]) -> OddOne | None:
    """The odd one out, from what the ranks raised; None where nobody was told, or where most do not agree."""
    calls = {
        int(match["rank"]): _call(match["op"], match["shape"], match["dtype"])
        for rank in ranks
        for match in _RUNNING.finditer(rank.error)
    }
    common, odd = majority(calls)
    return OddOne(odd[0], calls[odd[0]], common) if odd and common else None


def _call(op: str, shape: str | None, dtype: str | None) -> str:
    what = next((row.name for row in OPERATIONS.values() if row.c10d == op), op.lower())
    return f"{what} of {_DTYPES.get(dtype, dtype.lower())} {shape or ''}".rstrip() if dtype else what
