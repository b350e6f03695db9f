"""Data of a trace: what each rank called, when, and with which tensors.

All times are seconds since the run's first line.
"""

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
"""Largest difference when two processes read one clock, in seconds."""


class Reading(NamedTuple):
    """Convert what one clock shows to the time of the run."""

    offset: int = 0
    """Nanoseconds to add to get the time since the run's first line."""
    drift: float = 0.0
    """Fraction of the time since `since` to add on top."""
    since: int = 0
    """Reading of the clock, in nanoseconds, from which the drift counts."""

    def nanoseconds(self, shown: int) -> int:
        """Return the nanoseconds since the run's first line at which the clock showed a value."""
        return shown + self.offset + (int((shown - self.since) * self.drift) if self.drift else 0)


class Clocks(NamedTuple):
    """The clocks of all ranks, and how well their times compare."""

    readings: Mapping[int, Reading] = {}
    """By rank."""
    origin_s: float = 0.0
    """Unix time of the first line, in seconds."""
    names: Mapping[int, str] = {}
    """By rank: the name of its clock. Ranks with the same name share a clock."""
    errors: Mapping[int, float] = {}
    """By rank: how far its times may be off from the lab's clock, in seconds."""

    def uncertainty_s(self, ranks: Iterable[int]) -> float:
        """Return the largest error in seconds when you compare times of these ranks; 0 if they share a clock."""
        worst: dict[str, float] = {}
        for rank in self.names.keys() & set(ranks):
            worst[self.names[rank]] = max(worst.get(self.names[rank], 0.0), self.errors[rank])
        return sum(sorted(worst.values())[-2:]) if len(worst) > 1 else 0.0

    @property
    def error_s(self) -> float:
        """Largest error in seconds when you compare times of any two ranks."""
        return self.uncertainty_s(self.names) or SHARED_CLOCK_ERROR_S

    @property
    def are_separate(self) -> bool:
        """Whether the ranks have more than one clock."""
        return len(set(self.names.values())) > 1


@dataclass(slots=True)
class StoreLookup:
    """One rank's attempt to reach a rendezvous store."""

    host: str
    port: int
    asked_rank: int
    """The rank number that the process registers with."""
    world_size: int
    """How many ranks the process expects."""
    source: str
    begin: float
    end: float | None = None
    """When the store answered or the rank gave up; None if neither happened."""
    error: str = ""
    """Why the rank gave up."""

    @property
    def has_answer(self) -> bool:
        """Whether a store answered."""
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
    """A parameter of a DistributedDataParallel module. Its index in the module is the index that DDP uses."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(slots=True)
class Module:
    """A DistributedDataParallel module of one rank."""

    number: int
    """Number within the process, from 1, in the order of construction."""
    group: str
    source: str = ""
    """The line that constructed it."""
    parameters: tuple[Parameter, ...] = ()
    hook: str | None = None
    """Name of the registered communication hook; None if DDP itself reduces the gradients."""
    norms: dict[int, tuple[float | None, ...]] = field(default_factory=dict)
    """By number of optimizer steps taken: the norm of each parameter. Counts steps of optimizers that have its
    parameters."""


DUMPED = "flight recorder"
"""The `recorder` of a rank whose trace was made from a flight recorder dump."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """One tensor of a call, either an input or an output."""

    dtype: str
    """As PyTorch names it: `float32`."""
    shape: tuple[int, ...]
    values: Sequence[Any] | None = None
    """Its elements in order, if it was small enough to be recorded."""
    summary: Mapping[str, Any] | None = None
    """`n`, `norm`, `min`, `max`, `hash`, and perhaps `sampled`, if it was too large."""

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size in bytes. The name of the dtype gives the bits of an element; without a number it counts as one byte."""
        bits = re.search(r"\d+", self.dtype)
        return self.count * max(1, int(bits[0]) // 8 if bits else 1)


@dataclass(frozen=True, slots=True)
class Group:
    """A process group."""

    name: str
    """The name that PyTorch gave it."""
    ranks: tuple[int, ...]
    """Ranks of the run, in the order of group ranks; `lab.trace.read` explains where PyTorch numbers them
    differently."""
    backend: str = ""
    description: str = ""
    source: str = ""
    """The line that created it, `file:line`."""
    turn: int = 1
    """Its number among groups with the same ranks and description, in the order of creation."""
    shared: bool = False
    """Whether groups of other ranks have the same label."""

    @property
    def label(self) -> str:
        """Short name for people: `default`, `[0, 1]`, `[0, 1] (2nd)`."""
        return self.plain_label if self.turn == 1 else f"{self.plain_label} ({format_ordinal(self.turn)})"

    @property
    def plain_label(self) -> str:
        """The label without the turn."""
        if self.description not in ("", "undefined", "default_pg"):
            return self.description
        default = self.description == "default_pg" or (self.name == "0" and not self.description)
        return "default" if default else self._ranks

    @property
    def title(self) -> str:
        """The label; with the ranks if another group has the same label."""
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
    """Number of this collective within its group, from 1; None for point-to-point calls."""
    begin: float
    """When the call reached the backend, in seconds."""
    end: float | None = None
    """When it completed, in seconds; None if the trace has no end for it."""
    error: str = ""
    asynchronous: bool = False
    reduce_op: str = ""
    root: int | None = None
    """Global rank of the source (broadcast, scatter) or the destination (reduce, gather)."""
    peer: int | None = None
    """Global rank of the other side (send, recv); None for a receive from any rank that received nothing."""
    from_any: bool = False
    """Whether it is a receive that accepts a message from any rank."""
    tag: int = 0
    inputs: tuple[Buffer, ...] = ()
    """Tensors with their values before the call."""
    outputs: tuple[Buffer, ...] = ()
    """Tensors with their values after the call; for an in-place call, the same tensors as `inputs`."""
    is_inplace: bool = False
    bytes_in: int = 0
    bytes_out: int = 0
    splits: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """Output and input splits of all_to_all_single."""
    source: str = ""
    """`file:line` of the script that led to the call."""
    function: str = ""
    via: str = ""
    """The function that this line called: `all_reduce`, `backward`."""
    caller: str = ""
    """`file:line` of the script that called the function with that line; empty if it is in no function."""
    phase: str = ""
    """The innermost phase around the call: `forward`, `backward`, `DDP()`, `step`, ...; empty outside of all phases."""
    bucket: int | None = None
    """Index of the DDP bucket that the call reduces, in the order of reduction."""
    module: int | None = None
    """Number of the DDP module that has the bucket."""
    parameters: tuple[str, ...] = ()
    """Names of the parameters in that bucket."""
    divided: bool = False
    """Whether DDP is known to have divided the gradients by the size of the group before the call."""
    late: bool = False
    """Whether the recorded result may be from a later moment; see `lab.trace.read`."""

    @property
    def state(self) -> str:
        """`completed`, `failed`, or `unfinished`."""
        return "failed" if self.error else "unfinished" if self.end is None else "completed"

    @property
    def path(self) -> str:
        """Where the script made the call: its line, and the line that called the function with it."""
        return f"{self.source} {self.caller}"

    @property
    def has_handle(self) -> bool:
        """Whether the caller got a handle to wait for. Traces of messages do not record this; then `via` shows it."""
        return self.asynchronous or self.via.endswith(("isend", "irecv"))

    @property
    def operation(self) -> Operation:
        """The operation's row in the table of operations."""
        return get_operation(self.op)

    @property
    def giver(self) -> int | None:
        """Global rank that the data comes from, if it is a single rank."""
        return self._one(self.operation.giver)

    @property
    def taker(self) -> int | None:
        """Global rank that the data goes to, if it is a single rank."""
        return self._one(self.operation.taker)

    def _one(self, who: Who) -> int | None:
        if who is Who.ALL or who is Who.NOBODY:
            return None
        return self.root if who is Who.ROOT else self.peer if who is Who.PEER else self.rank

    @property
    def own(self) -> tuple[Buffer, ...]:
        """The input tensors of the rank, or its outputs if it has no inputs."""
        return self.inputs or self.outputs

    @property
    def bytes(self) -> int:
        """The larger of the bytes that the rank received and sent."""
        return max(self.bytes_in, self.bytes_out)


def calls_within(calls: Sequence[Call], begin: float, end: float) -> Sequence[Call]:
    """Return the calls of one rank that began between two times; `calls` is in the order of `begin`."""
    when = attrgetter("begin")
    return calls[bisect_left(calls, begin, key=when) : bisect_right(calls, end, key=when)]


@dataclass(slots=True)
class Phase:
    """A phase of a rank's work, such as `forward` or `step`, or one wait for a handle."""

    rank: int
    name: str
    begin: float
    end: float | None = None
    source: str = ""
    group: str = ""
    """Name of the group that it destroys; key of `Trace.groups`."""
    members: tuple[int, ...] = ()
    """Global ranks of the group that a `new_group` creates; empty if only the members have to call it."""
    module: int | None = None
    """For a forward: number of its DDP module; None if unknown."""
    synchronised: bool = True
    """For a forward of a DDP module: False under no_sync()."""
    changed: float | None = None
    """For a wait: begin of the call whose tensor the script changed in place before it waited."""


L = TypeVar("L", Phase, StoreLookup)


def end_last(intervals: Sequence[L], now: float) -> L | None:
    """End the latest interval that is still open, and return it; None if none is open."""
    last = next((interval for interval in reversed(intervals) if interval.end is None), None)
    if last is not None:
        last.end = now
    return last


@dataclass(slots=True)
class RankTrace:
    """The trace of one rank."""

    rank: int
    recorder: str = ""
    """`compiled`, `python`, or `DUMPED`; empty if the rank has no trace."""
    torch: str = ""
    first: float = 0.0
    """Seconds at its first line."""
    last: float = 0.0
    """Seconds at its last line."""
    stopped: bool = False
    """Whether the worker ended normally, with its trace complete."""
    exited_at: str = ""
    """The line at which the script called sys.exit or os._exit, of a worker with code 0; empty if it did not."""
    cut: str = ""
    """Why recording ended early; empty if it did not."""
    threads: bool = False
    """Whether several threads make calls. Then the order of calls in different groups is arbitrary."""
    calls: list[Call] = field(default_factory=list)
    """In the order in which they began."""
    skipped_bytes: int = 0
    """Size of the part of its file before the lines that were read, see `lab.trace.read`."""
    skipped: int = 0
    """How many calls came before those that were read."""
    skipped_steps: int = 0
    """How many optimizer steps ended before."""
    phases: list[Phase] = field(default_factory=list)
    buckets: list[Buckets] = field(default_factory=list)
    modules: list[Module] = field(default_factory=list)
    """Its DistributedDataParallel modules, including those whose construction failed."""
    waits: list[Phase] = field(default_factory=list)
    """When the script waited for handles, in order. Taking a handle's future counts as a wait of length 0."""
    stores: list[StoreLookup] = field(default_factory=list)
    """Its attempts to reach a store in init_process_group."""
    collections: list[tuple[float, float]] = field(default_factory=list)
    """Begin and end of garbage collections that stopped all threads of the rank for at least a millisecond."""
    extra: dict[str, Any] = field(default_factory=dict)
    """What features read from the trace, by a name that each feature chooses."""

    @property
    def dumped(self) -> bool:
        """Whether it was made from a dump. A dump shows how far the rank had come, not how it ended."""
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
    """The clocks that the times of its ranks come from."""
    problems: list[str] = field(default_factory=list)
    """What is missing or damaged, one sentence each."""
    stopped_s: float = math.inf
    """When the lab began to stop the ranks, in seconds. What they did later is left out: the signal that asks for a
    stack ends a `signal.pause()`, a blocked write, or a sleep in native code."""
    cut_short: dict[int, str] = field(default_factory=dict)
    """By rank: the problem that its trace ends too early. This is normal for a worker that was killed."""

    @property
    def origin(self) -> float:
        """Unix time of time 0, in seconds."""
        return self.clocks.origin_s

    @property
    def is_tail(self) -> bool:
        """Whether only the ends of traces were read."""
        return any(rank.skipped_bytes for rank in self.ranks.values())

    @property
    def recorded(self) -> bool:
        """Whether any rank has a trace."""
        return any(rank.recorded for rank in self.ranks.values())

    @property
    def calls(self) -> list[Call]:
        """All calls of all ranks, in the order in which they began."""
        return sorted((call for rank in self.ranks.values() for call in rank.calls), key=lambda call: call.begin)

    @property
    def last(self) -> float:
        """Seconds at the last line of any rank."""
        return max((rank.last for rank in self.ranks.values()), default=0.0)


def label_groups(groups: Mapping[str, Group]) -> dict[str, Group]:
    """Return the groups with labels and titles that are unique.

    Args:
        groups: by name, in the order in which they were created.
    """
    turns: Counter[tuple[str, tuple[int, ...]]] = Counter()
    numbered = {}
    for name, group in groups.items():
        key = group.label, tuple(sorted(group.ranks))
        turns[key] += 1
        numbered[name] = replace(group, turn=turns[key])
    labels = Counter(label for label, _ in {(group.label, group.ranks) for group in numbered.values()})
    return {name: replace(group, shared=labels[group.label] > 1) for name, group in numbered.items()}
