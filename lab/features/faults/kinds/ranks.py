"""Kinds of faults of ranks, injected by the agent of their node, or by the worker itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from typing import Any, ClassVar

from lab.features.faults.kinds import AgentFault, FaultKind
from lab.features.faults.target import ClusterTarget
from lab.spec.declare import key_field
from lab.spec.kinds import boolean_kind, choice_kind, duration_kind, rank_kind, text_kind, whole_number
from lab.words import format_count


class RankFault(FaultKind):
    """A kind whose value is a rank, or a mapping with the keys of the class."""

    rank: int = key_field(MISSING, rank_kind(), "signal: {rank: 2}")
    """The rank that it acts on."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """None: it acts on a rank on any node."""
        return ()

    def node_in(self, target: ClusterTarget) -> str:
        """Return the node of the rank; outside a run, the node that reports it, else the first running one."""
        if self.rank in target.ranks:
            return target.ranks[self.rank]
        running = [node for node in target.addresses if target.running(node)]
        own = (node for node in running if target.ask(node, "inspect_signal", {"rank": self.rank})["state"] != "ended")
        return next(own, next(iter([*running, *target.addresses])))


_STOPS = "SIGSTOP"
_SIGNALS = (
    *("SIGKILL", _STOPS, "SIGCONT", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGABRT", "SIGSEGV", "SIGBUS"),
    *("SIGFPE", "SIGILL", "SIGUSR1", "SIGUSR2"),
)


class Signal(RankFault, AgentFault):
    """The worker gets a signal; healing continues a worker that the signal stopped."""

    does = "sends a signal to a rank's worker; healing continues a worker stopped by SIGSTOP"
    example = "signal: {rank: 2, name: SIGSTOP}"
    template = "signal rank {rank} with {name}"
    by_agent = "signal"
    patience_s = 2.0
    draws: ClassVar = {"name": ("SIGKILL", "SIGABRT", "SIGSEGV")}
    name: str = key_field("SIGKILL", choice_kind(_SIGNALS), "signal: {rank: 2, name: SIGSEGV}")
    """The name of the signal."""

    def undo(self, target: ClusterTarget) -> None:
        """Continue the worker, if it was stopped and still exists."""
        if self.name == _STOPS:
            super().undo(target)


class Loader(RankFault, AgentFault):
    """A worker process of a DataLoader ends at once, as when memory runs out; nothing can undo this."""

    does = "kills a worker process of a rank's DataLoader"
    example = "loader: 1"
    template = "loader {worker} of rank {rank}"
    by_agent = "loader"
    worker: int = key_field(0, whole_number(0, 1023), "loader: {rank: 1, worker: 2}")
    """The worker process, in the order of their start."""

    def undo(self, _: ClusterTarget) -> None:
        """Do nothing."""


class WorkerFault(RankFault):
    """A kind that the worker of the rank injects itself, where its call, phase, or note holds it."""

    by_worker = True
    draws: ClassVar[Mapping[str, Sequence[Any]] | None] = {}


_ERRORS = (
    *("RuntimeError", "ValueError", "TypeError", "KeyError", "IndexError", "AssertionError", "ArithmeticError"),
    *("MemoryError", "OSError", "FileNotFoundError", "ConnectionError", "TimeoutError", "KeyboardInterrupt"),
)


class Raise(WorkerFault):
    """The current call, phase, or note of the rank raises the exception; the script can catch it there."""

    does = "raises an exception in a rank, at the call, phase, or note of its event"
    example = "raise: {rank: 1, error: ValueError}"
    template = "raise {error} in rank {rank}"
    error: str = key_field("RuntimeError", choice_kind(_ERRORS), "raise: {rank: 1, error: OSError}")
    """The class of the exception."""
    message: str = key_field("raised on purpose", text_kind("a message"), "raise: {rank: 1, message: no more data}")
    """The message of the exception."""


class Hang(WorkerFault):
    """The rank waits and holds the GIL: none of its threads and none of its signal handlers runs Python code."""

    does = "hangs a rank, by default while it holds the GIL"
    example = "hang: 1"
    harm = "slows"
    lock: bool = key_field(default=True, kind=boolean_kind(), example="hang: {rank: 1, lock: false}")
    """Whether the rank holds the GIL; without it, other threads of the rank continue."""

    def __str__(self) -> str:
        """`hang rank 1`."""
        return f"hang rank {self.rank}{'' if self.lock else ' without the lock'}"


class Pauses(WorkerFault):
    """The rank holds the GIL from time to time, like a garbage collector that scans a large heap."""

    does = "pauses a rank's interpreter again and again, as garbage collection does"
    example = "pauses: {rank: 1, every: 200ms, last: 50ms}"
    template = "pauses of {last_s:g}s every {every_s:g}s in rank {rank}"
    harm = "slows"
    every_s: float = key_field(0.5, duration_kind(3600), "pauses: {rank: 1, every: 200ms}", name="every")
    """The mean time between two pauses; each interval is random, from half of it to one and a half."""
    last_s: float = key_field(0.1, duration_kind(3600), "pauses: {rank: 1, last: 50ms}", name="last")
    """The length of each pause."""
    seed: int = key_field(0, whole_number(0, 2**31 - 1), "pauses: {rank: 1, seed: 7}")
    """The seed of the intervals; each rank has its own random numbers."""


class ChangedData(WorkerFault):
    """A kind that changes one element of a call's tensors."""

    harm = "spoils"
    of_call = True
    element: int = key_field(0, whole_number(0, 2**40), "element: 5")
    """The index of the element over all tensors of the call, from 0."""

    def unfit(self, tensors: Sequence[Mapping[str, Any]]) -> str:
        """Return why the call has no such element, or cannot have it changed."""
        first = 0
        for tensor in tensors:
            if self.element < first + tensor["elements"]:
                return self.unfit_number(str(tensor["dtype"]), int(tensor["bits"]))
            first += tensor["elements"]
        return f"the call has {format_count(first, 'element')}, but no element {self.element}"

    @abstractmethod
    def unfit_number(self, dtype: str, bits: int) -> str:
        """Return why a number of this dtype and width cannot be changed; empty: it can."""


class Nan(ChangedData):
    """One element of the call's input tensors becomes NaN."""

    does = "turns one element of a rank's input to a call into NaN"
    example = "nan: 1"
    template = "nan in element {element} of rank {rank}"

    def unfit_number(self, dtype: str, bits: int) -> str:
        """Return why this dtype has no NaN."""
        return "" if dtype.startswith(("float", "bfloat", "complex")) else f"{dtype} has no NaN"


class Flip(ChangedData):
    """A bit flips silently, as with defective memory."""

    does = "flips one bit of a rank's input to a call: silent data corruption"
    example = "flip: {rank: 1, bit: 30}"
    template = "flip bit {bit} of element {element} of rank {rank}"
    bit: int = key_field(30, whole_number(0, 63), "flip: {rank: 1, bit: 22}")
    """Index of the bit, from the lowest; 30 is the highest bit of a float32's exponent."""

    def unfit_number(self, dtype: str, bits: int) -> str:
        """Return why this dtype has no such bit."""
        return "" if self.bit < bits else f"{dtype} has no bit {self.bit}"
