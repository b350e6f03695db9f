"""The one table of operations: who gives what to whom, whether it is reduced, how it is called and drawn.

Scenarios, traces, explanations, pictures, traffic and the page take all they know of an operation from here. A new one
is a line here, a rule in `lab.trace.parts` unless its facts already say where its results come from, and a scenario.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Who(Enum):
    """Whose data an operation takes, or who gets it."""

    ALL = "every rank of the group"
    ROOT = "the one rank that is named"
    SELF = "the rank that calls"
    PEER = "the other end of a message"
    NOBODY = "no data moves"


class Cut(Enum):
    """What of its tensors a giver has for each taker."""

    WHOLE = "all of every tensor"
    TENSORS = "the i-th tensor for the i-th rank"
    SLICES = "the i-th of equal slices of every tensor"
    SPLITS = "slices as long as the call's splits say"
    UNKNOWN = "nobody knows"


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What there is to know of an operation."""

    name: str
    """As traces and scenarios have it."""
    c10d: str = ""
    """PyTorch's `OpType`, as its messages spell it."""
    giver: Who = Who.ALL
    taker: Who = Who.ALL
    cut: Cut = Cut.WHOLE
    reduces: bool = False
    joined: bool = False
    """Whether what comes from several ranks is put into one tensor, rather than into one tensor for each."""
    does: str = ""
    """A sentence, with `{root}` and `{red}` for the root and the reduction."""
    colour: str = "#838a94"

    @property
    def rooted(self) -> bool:
        """Whether a root is named."""
        return Who.ROOT in (self.giver, self.taker)

    @property
    def sends(self) -> bool:
        """Whether it is one end of a message: the sender's."""
        return self.giver is Who.SELF

    @property
    def receives(self) -> bool:
        """Whether it is one end of a message: the receiver's."""
        return self.taker is Who.SELF

    @property
    def message(self) -> bool:
        """Whether it is one end of a message."""
        return self.sends or self.receives

    @property
    def moves_data(self) -> bool:
        """Whether tensors take part; a barrier has none."""
        return self.giver is not Who.NOBODY

    @property
    def synchronises(self) -> bool:
        """Whether nobody can be done before everybody has come."""
        return not (self.rooted or self.message)

    @property
    def alike(self) -> bool:
        """Whether every rank has to bring as many elements as the others."""
        return self.reduces or (self.cut is Cut.WHOLE and (self.joined or self.giver is Who.ROOT))

    @property
    def everywhere_reduced(self) -> bool:
        """Whether every rank gets the reduction of whole tensors."""
        return self.reduces and self.cut is Cut.WHOLE and self.taker is Who.ALL

    def bus_factor(self, ranks: int) -> float | None:
        """What nccl-tests multiplies the algorithm bandwidth by; None where no data moves or nobody knows how."""
        if not self.moves_data or self.cut is Cut.UNKNOWN:
            return None
        collects = self.giver is Who.ALL and self.cut is Cut.WHOLE and not self.reduces
        share = (ranks - 1) / ranks if ranks else 0.0
        if self.everywhere_reduced:
            return 2 * share
        return share if collects or self.cut is not Cut.WHOLE else 1.0


_ALL_REDUCE = Operation(
    name="all_reduce", c10d="ALLREDUCE", reduces=True, colour="#4474b0",
    does="Every rank gets the {red} over all ranks, element by element.",
)  # fmt: skip
_ALL_GATHER = Operation(
    name="all_gather", c10d="ALLGATHER", colour="#d9822b",
    does="Every rank gets the tensors of all ranks, in the order of ranks.",
)  # fmt: skip
_INTO_TENSOR = replace(
    _ALL_GATHER, name="all_gather_into_tensor", c10d="_ALLGATHER_BASE", joined=True,
    does="Every rank gets the tensors of all ranks, joined in the order of ranks.",
)  # fmt: skip
_REDUCE_SCATTER = Operation(
    name="reduce_scatter", c10d="REDUCE_SCATTER", cut=Cut.TENSORS, reduces=True, colour="#2b8c87",
    does="The i-th rank gets the {red} over the i-th tensors of all ranks.",
)  # fmt: skip
_SCATTER_TENSOR = replace(
    _REDUCE_SCATTER, name="reduce_scatter_tensor", c10d="_REDUCE_SCATTER_BASE", cut=Cut.SLICES,
    does="The i-th rank gets the {red} over the i-th chunks of all ranks' tensors.",
)  # fmt: skip
_ALL_TO_ALL = Operation(
    name="all_to_all", c10d="ALLTOALL", cut=Cut.TENSORS, colour="#c2518f",
    does="The i-th tensor of rank r goes to the i-th rank, where it stands at place r.",
)  # fmt: skip
_BARRIER = Operation(
    name="barrier", c10d="BARRIER", giver=Who.NOBODY, taker=Who.NOBODY,
    does="Nobody goes on before everybody has come. No data moves.",
)  # fmt: skip
_SEND = Operation(
    name="send", c10d="SEND", giver=Who.SELF, taker=Who.PEER, colour="#5a9a4a",
    does="One rank sends, one receives; the others know nothing of it.",
)  # fmt: skip

OPERATIONS: dict[str, Operation] = {
    row.name: row
    for row in (
        Operation(
            name="broadcast", c10d="BROADCAST", giver=Who.ROOT, colour="#8560b8",
            does="{root} gives its tensor to every rank.",
        ),
        _ALL_REDUCE,
        replace(
            _ALL_REDUCE, name="all_reduce_coalesced", c10d="ALLREDUCE_COALESCED",
            does="Every rank gets the {red} over all ranks of every tensor, element by element.",
        ),
        Operation(
            name="reduce", c10d="REDUCE", taker=Who.ROOT, reduces=True, colour="#7ba3d4",
            does="{root} gets the {red} over all ranks; what the others hold afterwards is not defined.",
        ),
        _ALL_GATHER,
        _INTO_TENSOR,
        replace(_ALL_GATHER, name="all_gather_coalesced", c10d="ALLGATHER_COALESCED"),
        replace(_INTO_TENSOR, name="all_gather_into_tensor_coalesced", c10d="ALLGATHER_INTO_TENSOR_COALESCED"),
        Operation(
            name="gather", c10d="GATHER", taker=Who.ROOT, colour="#e6a960",
            does="{root} gets the tensors of all ranks, in the order of ranks; the others get nothing.",
        ),
        Operation(
            name="scatter", c10d="SCATTER", giver=Who.ROOT, cut=Cut.TENSORS, colour="#ae8fd6",
            does="{root} hands its i-th tensor to the i-th rank.",
        ),
        _REDUCE_SCATTER,
        _SCATTER_TENSOR,
        replace(_SCATTER_TENSOR, name="reduce_scatter_tensor_coalesced", c10d="REDUCE_SCATTER_TENSOR_COALESCED"),
        _ALL_TO_ALL,
        replace(
            _ALL_TO_ALL, name="all_to_all_single", c10d="ALLTOALL_BASE", cut=Cut.SPLITS, joined=True,
            does="Every rank cuts its tensor into a piece for each rank; pieces arrive in the order of ranks.",
        ),
        _BARRIER,
        replace(
            _BARRIER, name="monitored_barrier", c10d="",
            does="Nobody goes on before everybody has come; rank 0 tells who has not. No data moves.",
        ),
        _SEND,
        replace(_SEND, name="recv", c10d="RECV", giver=Who.PEER, taker=Who.SELF, colour="#8dbe77"),
    )
}  # fmt: skip
"""By name."""
MESSAGE = _SEND.name
"""What a send and its receive are called together."""


def operation(name: str) -> Operation:
    """The line of an operation; of one that is not in the table, what can be said of any collective."""
    return OPERATIONS.get(name) or Operation(name=name, cut=Cut.UNKNOWN)


@dataclass(frozen=True)
class Reduction:
    """How elements are reduced."""

    noun: str
    """The rest of `Every rank gets the ...`."""
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
"""By the name that traces and scenarios have; others are a `reduction`."""


def reduction(name: str) -> Reduction:
    """The line of a reduction, or what is said of one that is not known."""
    return REDUCTIONS.get(name) or Reduction("reduction")
