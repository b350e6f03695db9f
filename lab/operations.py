"""The table of operations: who sends what to whom, whether they reduce it, and the names and colors of operations.

Scenarios, traces, explanations, pictures, traffic, and the page read all facts about an operation from here. A new
operation needs a row here and a scenario. It also needs a rule in `lab.features.values.expected`, unless the row
already defines its results.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property


class Who(Enum):
    """Whose data an operation takes, or which ranks receive it."""

    ALL = "every rank of the group"
    ROOT = "the one rank that is named"
    SELF = "the rank that calls"
    PEER = "the other end of a message"
    NOBODY = "no data moves"


class Cut(Enum):
    """Which part of a sender's tensors each receiver gets."""

    WHOLE = "all of every tensor"
    TENSORS = "the i-th tensor for the i-th rank"
    SLICES = "the i-th of equal slices of every tensor"
    SPLITS = "slices of the sizes in the call's splits"
    OTHER = "according to its rule in lab.features.values.expected, if it has one"


@dataclass(frozen=True)
class Operation:
    """A row of the table: the facts about one operation."""

    name: str
    """Name in traces and scenarios."""
    c10d: str = ""
    """PyTorch's `OpType`, as in its messages."""
    giver: Who = Who.ALL
    taker: Who = Who.ALL
    cut: Cut = Cut.OTHER
    colour: str = "#838a94"
    does: str = ""
    """A sentence, with `{root}` and `{red}` for the root and the reduction."""
    reduces: bool = False
    joined: bool = False
    """Whether the data of all ranks goes into one tensor instead of one tensor per rank."""
    dumped: str = ""
    """Name in flight recorder dumps, if it differs."""

    @cached_property
    def rooted(self) -> bool:
        """Whether it has a root."""
        return Who.ROOT in (self.giver, self.taker)

    @cached_property
    def sends(self) -> bool:
        """Whether it is the sender's side of a message."""
        return self.giver is Who.SELF

    @cached_property
    def receives(self) -> bool:
        """Whether it is the receiver's side of a message."""
        return self.taker is Who.SELF

    @property
    def moves_data(self) -> bool:
        """Whether it has tensors; a barrier has none."""
        return self.giver is not Who.NOBODY

    @cached_property
    def synchronises(self) -> bool:
        """Whether no rank can finish before all ranks have entered."""
        return not (self.rooted or self.sends or self.receives)

    @cached_property
    def alike(self) -> bool:
        """Whether all ranks must pass the same number of elements."""
        return self.reduces or (self.cut is Cut.WHOLE and (self.joined or self.giver is Who.ROOT))

    @property
    def reduces_for_all(self) -> bool:
        """Whether every rank receives the reduction of whole tensors."""
        return self.reduces and self.cut is Cut.WHOLE and self.taker is Who.ALL


ALL, ROOT, SELF, PEER, NOBODY = Who
WHOLE, TENSORS, SLICES, SPLITS, OTHER = Cut
# fmt: off
_ROWS = (
    Operation("broadcast", "BROADCAST", ROOT, ALL, WHOLE, "#8560b8", "{root} gives its tensor to every rank."),
    Operation("all_reduce", "ALLREDUCE", ALL, ALL, WHOLE, "#4474b0",
              "Every rank gets the {red} over all ranks, element by element.", reduces=True),
    Operation("all_reduce_coalesced", "ALLREDUCE_COALESCED", ALL, ALL, WHOLE, "#4474b0",
              "Every rank gets the {red} over all ranks of every tensor, element by element.", reduces=True,
              dumped="allreduce_coalesced"),
    Operation("reduce", "REDUCE", ALL, ROOT, WHOLE, "#7ba3d4",
              "{root} gets the {red} over all ranks; what the others hold afterwards is not defined.", reduces=True),
    Operation("all_gather", "ALLGATHER", ALL, ALL, WHOLE, "#d9822b",
              "Every rank gets the tensors of all ranks, in the order of ranks."),
    Operation("all_gather_into_tensor", "_ALLGATHER_BASE", ALL, ALL, WHOLE, "#d9822b",
              "Every rank gets the tensors of all ranks, joined in the order of ranks.", joined=True,
              dumped="_all_gather_base"),
    Operation("all_gather_coalesced", "ALLGATHER_COALESCED", ALL, ALL, WHOLE, "#d9822b",
              "Every rank gets the tensors of all ranks, in the order of ranks.", dumped="ALLGATHER_coalesced"),
    Operation("all_gather_into_tensor_coalesced", "ALLGATHER_INTO_TENSOR_COALESCED", ALL, ALL, WHOLE, "#d9822b",
              "Every rank gets the tensors of all ranks, joined in the order of ranks.", joined=True),
    Operation("gather", "GATHER", ALL, ROOT, WHOLE, "#e6a960",
              "{root} gets the tensors of all ranks, in the order of ranks; the others get nothing."),
    Operation("scatter", "SCATTER", ROOT, ALL, TENSORS, "#ae8fd6", "{root} sends its i-th tensor to the i-th rank."),
    Operation("reduce_scatter", "REDUCE_SCATTER", ALL, ALL, TENSORS, "#2b8c87",
              "The i-th rank gets the {red} over the i-th tensors of all ranks.", reduces=True),
    Operation("reduce_scatter_tensor", "_REDUCE_SCATTER_BASE", ALL, ALL, SLICES, "#2b8c87",
              "The i-th rank gets the {red} over the i-th chunks of all ranks' tensors.", reduces=True,
              dumped="_reduce_scatter_base"),
    Operation("reduce_scatter_tensor_coalesced", "REDUCE_SCATTER_TENSOR_COALESCED", ALL, ALL, SLICES, "#2b8c87",
              "The i-th rank gets the {red} over the i-th chunks of all ranks' tensors.", reduces=True),
    Operation("all_to_all", "ALLTOALL", ALL, ALL, TENSORS, "#c2518f",
              "The i-th tensor of rank r goes to the i-th rank, which gets it at position r."),
    Operation("all_to_all_single", "ALLTOALL_BASE", ALL, ALL, SPLITS, "#c2518f",
              "Every rank cuts its tensor into a piece for each rank; pieces arrive in the order of ranks.",
              dumped="all_to_all"),
    Operation("barrier", "BARRIER", NOBODY, NOBODY, WHOLE,
              does="No rank continues before every rank has entered it. No data moves."),
    Operation("monitored_barrier", "", NOBODY, NOBODY, WHOLE,
              does="No rank continues before every rank has entered it; rank 0 reports missing ranks. No data moves.",
              dumped="barrier"),
    Operation("send", "SEND", SELF, PEER, WHOLE, "#5a9a4a",
              "One rank sends, one receives; the others are not involved."),
    Operation("recv", "RECV", PEER, SELF, WHOLE, "#8dbe77"),
)
# fmt: on
OPERATIONS = {row.name: row for row in _ROWS}
"""By name."""
MESSAGE = "send"
"""Operation name of a message, for its send and its receive together."""


def get_operation(name: str) -> Operation:
    """Return the row of an operation; for an unknown one, a row with the defaults of a collective."""
    return OPERATIONS.get(name) or Operation(name)


@dataclass(frozen=True)
class Reduction:
    """Describe how elements are reduced."""

    noun: str
    """Completes the sentence `Every rank gets the ...`."""
    sign: str = "op"


REDUCTIONS = {
    "SUM": Reduction("sum", "Σ"),
    "AVG": Reduction("mean", "avg"),
    "PRODUCT": Reduction("product", "Π"),
    "MIN": Reduction("minimum", "min"),
    "MAX": Reduction("maximum", "max"),
    "BAND": Reduction("bitwise and", "&"),
    "BOR": Reduction("bitwise or", "|"),
    "BXOR": Reduction("bitwise exclusive or", "^"),
    "PREMUL_SUM": Reduction("sum, scaled first,"),
}
"""By name in traces and scenarios; an unknown one is a `reduction`."""


def get_reduction(name: str) -> Reduction:
    """Return the row of a reduction; for an unknown one, a default row."""
    return REDUCTIONS.get(name) or Reduction("reduction")
