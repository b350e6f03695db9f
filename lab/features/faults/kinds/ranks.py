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
    """The worker gets a signal; a stopped one is continued at the end."""

    does = "sends a signal to a rank's worker; healing continues a worker stopped by SIGSTOP"
    example = "signal: {rank: 2, name: SIGSTOP}"
    template = "signal rank {rank} with {name}"
    shown_as = ("killed", "stopped")
    by_agent = "signal"
    patience_s = 2.0
    draws: ClassVar = {"name": ("SIGKILL", "SIGABRT", "SIGSEGV")}
    name: str = key_field("SIGKILL", choice_kind(_SIGNALS), "signal: {rank: 2, name: SIGSEGV}")
    """Which one."""

    def undo(self, target: ClusterTarget) -> None:
        """Continue the worker, if it was stopped and still exists."""
        if self.name == _STOPS:
            super().undo(target)


class Loader(RankFault, AgentFault):
    """A worker of a DataLoader ends at once, as after running out of memory; this cannot be undone."""

    does = "kills a worker process of a rank's DataLoader"
    example = "loader: 1"
    template = "loader {worker} of rank {rank}"
    shown_as = ("loader_killed",)
    by_agent = "loader"
    worker: int = key_field(0, whole_number(0, 1023), "loader: {rank: 1, worker: 2}")
    """Which one, in the order of their start."""

    def undo(self, _: ClusterTarget) -> None:
        """Do nothing."""


class WorkerFault(RankFault):
    """A kind that the worker of the rank performs itself, where its call, phase, or note holds it."""

    by_worker = True
    draws: ClassVar[Mapping[str, Sequence[Any]] | None] = {}


_ERRORS = (
    *("RuntimeError", "ValueError", "TypeError", "KeyError", "IndexError", "AssertionError", "ArithmeticError"),
    *("MemoryError", "OSError", "FileNotFoundError", "ConnectionError", "TimeoutError", "KeyboardInterrupt"),
)


class Raise(WorkerFault):
    """The exception leaves the call, phase, or note that the rank is at, and may be caught there."""

    does = "raises an exception in a rank, at the call, phase, or note of its event"
    example = "raise: {rank: 1, error: ValueError}"
    template = "raise {error} in rank {rank}"
    shown_as = ("exception",)
    error: str = key_field("RuntimeError", choice_kind(_ERRORS), "raise: {rank: 1, error: OSError}")
    """Its class."""
    message: str = key_field("raised on purpose", text_kind("what it says"), "raise: {rank: 1, message: no more data}")
    """What it says."""


class Hang(WorkerFault):
    """The rank waits and holds the interpreter's lock: none of its threads runs Python, and no signal handler does."""

    does = "hangs a rank, by default with the interpreter's lock"
    example = "hang: 1"
    shown_as = ("never_came", "never_entered", "late")
    harm = "slows"
    lock: bool = key_field(default=True, kind=boolean_kind(), example="hang: {rank: 1, lock: false}")
    """Whether it holds the lock; without it, other threads of the rank go on."""

    def __str__(self) -> str:
        """`hang rank 1`."""
        return f"hang rank {self.rank}{'' if self.lock else ' without the lock'}"


class Pauses(WorkerFault):
    """All threads wait for the lock from time to time, as while a garbage collector scans a large heap."""

    does = "pauses a rank's interpreter again and again, as garbage collection does"
    example = "pauses: {rank: 1, every: 200ms, last: 50ms}"
    template = "pauses of {last_s:g}s every {every_s:g}s in rank {rank}"
    shown_as = ("straggler", "late")
    harm = "slows"
    every_s: float = key_field(0.5, duration_kind(3600), "pauses: {rank: 1, every: 200ms}", name="every")
    """Time between two of them, on average; each is drawn from half of it to one and a half."""
    last_s: float = key_field(0.1, duration_kind(3600), "pauses: {rank: 1, last: 50ms}", name="last")
    """How long each is."""
    seed: int = key_field(0, whole_number(0, 2**31 - 1), "pauses: {rank: 1, seed: 7}")
    """Of what is drawn; ranks draw on their own."""


class ChangedData(WorkerFault):
    """A kind that changes one element of a call's tensors."""

    harm = "spoils"
    of_call = True
    element: int = key_field(0, whole_number(0, 2**40), "element: 5")
    """Which one, over all tensors of the call, counted from 0."""

    def unfit(self, tensors: Sequence[Mapping[str, Any]]) -> str:
        """Return why the call has no such element, or one that cannot be changed."""
        first = 0
        for tensor in tensors:
            if self.element < first + tensor["elements"]:
                return self.unfit_number(str(tensor["dtype"]), int(tensor["bits"]))
            first += tensor["elements"]
        return f"the call brings {format_count(first, 'element')}, and none of number {self.element}"

    @abstractmethod
    def unfit_number(self, dtype: str, bits: int) -> str:
        """Return why a number of this type, of so many bits, cannot be changed; empty: it can."""


class Nan(ChangedData):
    """One element of the call's input tensors becomes NaN."""

    does = "turns one element of a rank's input to a call into NaN"
    example = "nan: 1"
    template = "nan in element {element} of rank {rank}"
    shown_as = ("nonfinite", "not_a_number")

    def unfit_number(self, dtype: str, bits: int) -> str:
        """Integers are never NaN."""
        return "" if dtype.startswith(("float", "bfloat", "complex")) else f"no {dtype} is NaN"


class Flip(ChangedData):
    """A bit flips silently, as with defective memory."""

    does = "flips one bit of a rank's input to a call: silent data corruption"
    example = "flip: {rank: 1, bit: 30}"
    template = "flip bit {bit} of element {element} of rank {rank}"
    shown_as = ("outlier", "nonfinite", "not_a_number", "diverged", "wrong_result")
    bit: int = key_field(30, whole_number(0, 63), "flip: {rank: 1, bit: 22}")
    """Which bit of it, from the lowest; 30 is the highest of a float32's exponent."""

    def unfit_number(self, dtype: str, bits: int) -> str:
        """The number needs such a bit."""
        return "" if self.bit < bits else f"a {dtype} has no bit {self.bit}"
