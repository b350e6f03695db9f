"""A trace as data: what every rank called, when, with what. All times are seconds since the run's first line."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from lab.operations import Operation, Who, get_operation
from lab.words import format_ordinal

SHARED_CLOCK_ERROR_S = 1e-6
"""Two reads of one clock by two processes."""


class Reading(NamedTuple):
    """How a clock is read."""

    offset: int = 0
    """Nanoseconds to be added to have the time since the run's first line,"""
    drift: float = 0.0
    """and so much of those that have passed"""
    since: int = 0
    """since it showed that."""

    def nanoseconds(self, shown: int) -> int:
        """The time since the run's first line when it showed that."""
        return shown + self.offset + (int((shown - self.since) * self.drift) if self.drift else 0)


class Clocks(NamedTuple):
    """How the times of the ranks are compared."""

    readings: Mapping[int, Reading] = {}
    """By rank."""
    origin_s: float = 0.0
    """Unix time of the first line."""
    names: Mapping[int, str] = {}
    """By rank: the same for those that share a clock."""
    errors: Mapping[int, float] = {}
    """By rank: seconds that its times may be off from those by the lab's clock."""

    def apart_s(self, ranks: Iterable[int]) -> float:
        """How wrong the times of any two of these ranks may be when they are compared; 0: they have the same clock."""
        worst: dict[str, float] = {}
        for rank in self.names.keys() & set(ranks):
            worst[self.names[rank]] = max(worst.get(self.names[rank], 0.0), self.errors[rank])
        return sum(sorted(worst.values())[-2:]) if len(worst) > 1 else 0.0

    @property
    def error_s(self) -> float:
        """The same of all."""
        return self.apart_s(self.names) or SHARED_CLOCK_ERROR_S

    @property
    def several(self) -> bool:
        """Whether there are any but one."""
        return len(set(self.names.values())) > 1


@dataclass(slots=True)
class StoreLookup:
    """One rank's look for a rendezvous store."""

    host: str
    port: int
    asked_rank: int
    """Which rank it says that it is."""
    world_size: int
    """How many ranks it expects."""
    source: str
    begin: float
    end: float | None = None
    """When it was answered or gave up; None if neither."""
    error: str = ""
    """Why it gave up."""

    @property
    def found(self) -> bool:
        """Whether there was a store that answered."""
        return self.end is not None and not self.error


@dataclass(frozen=True, slots=True)
class Buckets:
    """How a DistributedDataParallel module of one rank sorted its parameters into buckets."""

    rank: int
    module: int
    """Number of the module in its process, from 1."""
    group: str
    time: float
    rebuilt: bool
    buckets: tuple[tuple[str, ...], ...]
    """Names of the parameters of each bucket, in the order of reduction."""
    sizes: tuple[int, ...]
    """Elements in each bucket."""


class Parameter(NamedTuple):
    """A parameter of a DistributedDataParallel module, where it stands in the order that DDP goes by."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(slots=True)
class Module:
    """A DistributedDataParallel module of one rank."""

    number: int
    """In its process, from 1, in the order of construction."""
    group: str
    source: str = ""
    """The line that constructed it."""
    parameters: tuple[Parameter, ...] = ()
    hook: str | None = None
    """What was registered to reduce its gradients; None: nothing, DDP does."""
    norms: dict[int, tuple[float | None, ...]] = field(default_factory=dict)
    """After so many steps of optimizers that have parameters of it: the norm of each parameter."""


DUMPED = "flight recorder"
"""What is called the recorder of a rank whose trace is made of a dump."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """One tensor at one side of a call."""

    dtype: str
    """As PyTorch names it: `float32`."""
    shape: tuple[int, ...]
    values: Sequence[Any] | None = None
    """Its elements in order, where it was small enough to be kept."""
    summary: Mapping[str, Any] | None = None
    """`n`, `norm`, `min`, `max`, `hash`, perhaps `sampled`, where it was not."""

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Its size: an element has the bits that the name of its dtype tells, or one byte."""
        bits = re.search(r"\d+", self.dtype)
        return self.count * max(1, int(bits[0]) // 8 if bits else 1)


@dataclass(frozen=True, slots=True)
class Group:
    """A process group."""

    name: str
    """PyTorch's name of it."""
    ranks: tuple[int, ...]
    """Ranks of the run, in the order of group ranks; see `lab.trace.read` for where PyTorch's are others."""
    backend: str = ""
    description: str = ""
    source: str = ""
    """The line that made it, `file:line`."""
    turn: int = 1
    """Its place among the groups with the same ranks and description, in the order in which they were made."""
    shared: bool = False
    """Whether groups of other ranks have the same label."""

    @property
    def label(self) -> str:
        """How a person would call it: `default`, `[0, 1]`, `[0, 1] (2nd)`."""
        return self.plain_label if self.turn == 1 else f"{self.plain_label} ({format_ordinal(self.turn)})"

    @property
    def plain_label(self) -> str:
        """Its label without its turn."""
        if self.description not in ("", "undefined", "default_pg"):
            return self.description
        default = self.description == "default_pg" or (self.name == "0" and not self.description)
        return "default" if default else self._ranks

    @property
    def title(self) -> str:
        """Its label, with its ranks where the label alone could be another group's."""
        return f"{self.label} {self._ranks}" if self.shared else self.label

    @property
    def _ranks(self) -> str:
        return f"[{', '.join(map(str, self.ranks))}]"


@dataclass(slots=True)
class Call:
    """One call of one rank."""

    rank: int
    index: int
    """Number within the rank's trace, from 1."""
    op: str
    group: str
    """Name of the group; key of `Trace.groups`."""
    seq: int | None
    """Number of this collective within its group, from 1; None for point to point."""
    begin: float
    """Seconds: the call reached the backend."""
    end: float | None = None
    """Seconds: it completed; None if it never did while the trace went on."""
    error: str = ""
    asynchronous: bool = False
    reduce_op: str = ""
    root: int | None = None
    """Global rank of the source (broadcast, scatter) or destination (reduce, gather)."""
    peer: int | None = None
    """Global rank of the other side (send, recv); None for a receive from any rank that received nothing."""
    from_any: bool = False
    """Whether it is a receive that takes what comes first from any rank."""
    tag: int = 0
    inputs: tuple[Buffer, ...] = ()
    """With values before the call."""
    outputs: tuple[Buffer, ...] = ()
    """With values after the call; of a call in place, the same tensors as `inputs`."""
    in_place: bool = False
    bytes_in: int = 0
    bytes_out: int = 0
    splits: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """Output and input splits of all_to_all_single."""
    source: str = ""
    """`file:line` of the script that led to it."""
    function: str = ""
    via: str = ""
    """What that line called: `all_reduce`, `backward`."""
    phase: str = ""
    """The innermost mark around it: `forward`, `backward`, `DDP()`, `step`, ...; empty outside."""
    bucket: int | None = None
    """Index of the DDP bucket that it reduces, in the order of reduction."""
    module: int | None = None
    """Number of the DDP module that has the bucket."""
    parameters: tuple[str, ...] = ()
    """Names of the parameters in that bucket."""
    divided: bool = False
    """Whether the gradients in it are known to have been divided by the size of the group before."""
    late: bool = False
    """Whether its result may be on record as it was later; see `lab.trace.read`."""

    @property
    def state(self) -> str:
        """`completed`, `failed`, or `unfinished`."""
        return "failed" if self.error else "unfinished" if self.end is None else "completed"

    @property
    def hands_out(self) -> bool:
        """Whether its caller got a handle to wait for, which messages do not have on record."""
        return self.asynchronous or self.via.endswith(("isend", "irecv"))

    @property
    def operation(self) -> Operation:
        """What there is to know of its operation."""
        return get_operation(self.op)

    @property
    def giver(self) -> int | None:
        """Global rank that its data comes from, where that is one rank."""
        return self._one(self.operation.giver)

    @property
    def taker(self) -> int | None:
        """Global rank that its data goes to, where that is one rank."""
        return self._one(self.operation.taker)

    def _one(self, who: Who) -> int | None:
        if who is Who.ALL or who is Who.NOBODY:
            return None
        return self.root if who is Who.ROOT else self.peer if who is Who.PEER else self.rank

    @property
    def own(self) -> tuple[Buffer, ...]:
        """The tensors that the rank puts in, or, where it puts in none, those that it gets."""
        return self.inputs or self.outputs

    @property
    def bytes(self) -> int:
        """The larger of what it took and what it gave."""
        return max(self.bytes_in, self.bytes_out)


def calls_within(calls: Sequence[Call], begin: float, end: float) -> Sequence[Call]:
    """Those of a rank's calls, which are in order, that began between two moments."""
    when = attrgetter("begin")
    return calls[bisect_left(calls, begin, key=when) : bisect_right(calls, end, key=when)]


@dataclass(slots=True)
class Mark:
    """A phase of a rank's training step."""

    rank: int
    name: str
    begin: float
    end: float | None = None
    source: str = ""
    group: str = ""
    """Name of the group that it destroys; key of `Trace.groups`."""
    members: tuple[int, ...] = ()
    """Global ranks of the group that it makes; empty of one that is made by its members alone."""
    module: int | None = None
    """Of a forward: number of the DDP module whose it is; None where that is not known."""
    synchronised: bool = True
    """Of a forward of a DDP module: False under no_sync()."""
    changed: float | None = None
    """Of a wait: when the call began of which the script had changed a tensor in place before it waited."""


L = TypeVar("L", Mark, StoreLookup)


def end_last(begun: Sequence[L], now: float) -> L | None:
    """End what began last and has not ended; what that was."""
    last = next((one for one in reversed(begun) if one.end is None), None)
    if last is not None:
        last.end = now
    return last


@dataclass(slots=True)
class RankTrace:
    """The trace of one rank."""

    rank: int
    recorder: str = ""
    """`compiled` or `python`, or DUMPED; empty where the rank has no trace."""
    torch: str = ""
    first: float = 0.0
    """Seconds at its first line."""
    last: float = 0.0
    """Seconds at its last line."""
    stopped: bool = False
    """Whether the worker ended normally, with its trace complete."""
    cut: str = ""
    """Why recording ended early; empty where it did not."""
    threads: bool = False
    """Whether several threads of it make calls, so that the order of those of different groups is by chance."""
    calls: list[Call] = field(default_factory=list)
    """In the order in which they began."""
    marks: list[Mark] = field(default_factory=list)
    buckets: list[Buckets] = field(default_factory=list)
    modules: list[Module] = field(default_factory=list)
    """Its DistributedDataParallel modules, those whose construction failed among them."""
    waits: list[Mark] = field(default_factory=list)
    """When the script waited for handles, in order; what takes the future of a handle is one that takes no time."""
    stores: list[StoreLookup] = field(default_factory=list)
    """Where it looked for a store in init_process_group."""
    collections: list[tuple[float, float]] = field(default_factory=list)
    """When a garbage collector held up all threads of it for a millisecond or more: from when to when."""
    extra: dict[str, Any] = field(default_factory=dict)
    """What features read of it, by what they call that."""

    @property
    def dumped(self) -> bool:
        """Whether it is made of a dump, which tells how far the rank had come and not how it ended."""
        return self.recorder == DUMPED

    @property
    def recorded(self) -> bool:
        """Whether the rank has a trace."""
        return bool(self.recorder or self.calls)


@dataclass(slots=True)
class Trace:
    """The trace of a run."""

    world_size: int
    ranks: dict[int, RankTrace]
    groups: dict[str, Group]
    clocks: Clocks = field(default_factory=Clocks)
    """By which its ranks were timed."""
    problems: list[str] = field(default_factory=list)
    cut_short: dict[int, str] = field(default_factory=dict)
    """By rank: the problem that its trace ends too early, as it does where the worker was killed."""
    """What is missing or damaged, a sentence each."""

    @property
    def origin(self) -> float:
        """Unix time (seconds) of time 0."""
        return self.clocks.origin_s

    @property
    def recorded(self) -> bool:
        """Whether any rank has a trace."""
        return any(rank.recorded for rank in self.ranks.values())

    @property
    def calls(self) -> list[Call]:
        """Every call of every rank, in the order in which they began."""
        return sorted((call for rank in self.ranks.values() for call in rank.calls), key=lambda call: call.begin)

    @property
    def last(self) -> float:
        """Seconds at the last line of any rank."""
        return max((rank.last for rank in self.ranks.values()), default=0.0)


def tell_apart(groups: Mapping[str, Group]) -> dict[str, Group]:
    """The groups, given in the order in which they were made, so that no two have the same title."""
    turns: Counter[tuple[str, tuple[int, ...]]] = Counter()
    told = {}
    for name, group in groups.items():
        alike = group.label, tuple(sorted(group.ranks))
        turns[alike] += 1
        told[name] = replace(group, turn=turns[alike])
    labels = Counter(label for label, _ in {(group.label, group.ranks) for group in told.values()})
    return {name: replace(group, shared=labels[group.label] > 1) for name, group in told.items()}


@dataclass
class World:
    """What a rank did to groups from one init_process_group to the next."""

    begun: Mark
    """The init_process_group."""
    made: list[Mark] = field(default_factory=list)
    """Every new_group in which all ranks have to take part, in order."""
    destroyed: Mark | None = None
    """When it destroyed the default group, and all others with it."""


def worlds_of(rank: RankTrace, groups: Mapping[str, Group]) -> list[World]:
    """The worlds of a rank, in order."""
    worlds: list[World] = []
    for mark in rank.marks:
        if mark.name == "init_process_group":
            if not worlds or worlds[-1].destroyed is not None:
                worlds.append(World(mark))
            elif not worlds[-1].made:  # an attempt after one that failed; else it is refused
                worlds[-1].begun = mark
        elif worlds and mark.name == "new_group" and mark.members:
            worlds[-1].made.append(mark)
        elif worlds and is_end_of_world(mark, groups):
            worlds[-1].destroyed = mark
    return worlds


def is_end_of_world(mark: Mark, groups: Mapping[str, Group]) -> bool:
    """Whether a mark is the destruction of the default group."""
    group = groups.get(mark.group)
    return mark.name == "destroy_process_group" and (group is None or group.plain_label == "default")
