"""What a kind of fault is, and what faults are done to."""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from lab.engine.protocol import Need
from lab.engine.select import traits_of
from lab.features.faults import kinds
from lab.spec.kinds import Kind

T = TypeVar("T")
Harm = Literal["slows", "loses", "spoils"]
"""What a run may suffer: it takes longer and comes out the same; it loses somebody and may fail; data is changed."""


class Chance(Protocol):
    """What decides where a fault is drawn for a run."""

    @property
    def nodes(self) -> Sequence[str]:
        """Of the run."""

    @property
    def ranks(self) -> Sequence[int]:
        """Of the run."""

    def one_of(self, choices: Sequence[T]) -> T:
        """One of them."""


class Ground(Protocol):
    """What faults are done to: the nodes of a cluster, by what its engine and its agents can do.

    Whoever uses it is alone: nobody else does or undoes a fault of the cluster meanwhile.
    """

    engine: str
    """The engine's name."""
    addresses: Mapping[str, str]
    """Of every node of the cluster."""
    ranks: Mapping[int, str]
    """The node of each rank of the run that goes on; empty where none does."""

    def running(self, node: str) -> bool:
        """Whether a node runs now, as its engine sees it."""

    def kill(self, node: str) -> None:
        """Cut a node's power; it is not marked as stopped by hand."""

    def start(self, node: str) -> None:
        """Start a node and wait until its agent can fork workers."""

    def pause(self, node: str) -> None:
        """Have every process of a node stand still, where it runs."""

    def resume(self, node: str) -> None:
        """Have them go on, where they stand still."""

    def paused(self, node: str) -> bool:
        """Whether they stand still."""

    def limit(self, node: str, *, cpus: float | None = None, memory_bytes: int | None = None) -> None:
        """Let a node use no more than this from now on; what is None stays as it is."""

    def unlimit(self, node: str, *, cpus: bool = False, memory: bool = False) -> None:
        """Let a node use as much again as it was made with."""

    def throttle(self, node: str) -> Mapping[str, float]:
        """What a node may use now: `cpus` and `memory_bytes`."""

    def in_force(self) -> Sequence[FaultKind]:
        """All faults that are in force, or just being done, in their order; not one that is just being taken back."""

    def ask(self, node: str, deed: str, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have the agent of a node do a deed (see `lab.node.deeds`) and wait until it is done; what it found.

        Raises:
            LabError: it cannot be done, or the agent does not answer in time.
        """

    def take_back(self, node: str, deed: str, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """As `ask`, for having it undone, whether it was done or not."""

    def look_at(self, node: str, deed: str, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """As `ask`, for how it is; nothing is changed."""


@dataclass(frozen=True)
class ReadBack:
    """A fault as it was found to be where it was done."""

    in_force: bool
    found: Mapping[str, Any] = field(default_factory=dict)
    """What was measured, by what it is, with its unit in the name: `{"asked_bits_per_s": 1e8}`."""


@dataclass(frozen=True, kw_only=True)
class FaultKind(ABC):
    """One kind of fault: its data, and what is done for it. What is done may take seconds."""

    does: ClassVar[str]
    """What it breaks, a line for the reference."""
    example: ClassVar[str]
    """Its key and value, as a file writes them: `kill: node2`."""
    shown_as: ClassVar[tuple[str, ...]]
    """Causes of a culprit, or kinds of findings, that are right for it; empty: it breaks nothing."""
    by_worker: ClassVar[bool] = False
    """Whether the worker itself does it, as `deed` says: only where its call, phase or note holds it."""
    of_writes: ClassVar[bool] = False
    """Whether it is done to what ranks write to files: that has to be seen from their start."""
    of_call: ClassVar[bool] = False
    """Whether it is done to the tensors that a call brings: only before one that takes some."""
    leaves_running: ClassVar[bool | None] = None
    """Whether its nodes run afterwards; None: as before."""
    harm: ClassVar[Harm] = "loses"
    """What a run may suffer from it at most, where it is healed after a while."""
    passes: ClassVar[bool] = False
    """Whether a search has it healed after a while, though it loses somebody: else those who try again try for ever."""
    needs: ClassVar[Need] = ""
    """What it needs of the engine, beside that its nodes run."""
    strict_cannot: ClassVar[str] = ""
    """Why a strict cluster cannot have it, as such an end; empty: it can."""

    @classmethod
    @abstractmethod
    def value(cls) -> Kind:
        """What the value of its key may be: read as this class, dumped as a file says it."""

    @classmethod
    def why_not(cls, engine: str) -> str:
        """Why an engine cannot do it, as the end of a sentence that begins with the fault; empty: it can."""
        return traits_of(engine).cannot.get(cls.needs, "")

    @classmethod
    def drawn(cls, _: Chance) -> FaultKind | None:
        """One of its kind, for a search; None: no search draws one."""
        return None

    @classmethod
    def parse(cls, words: Sequence[str]) -> str:
        """What a command line says of it, as the value in a file would.

        Raises:
            UsageError: it says too little, or too much.
        """
        text = " ".join(words)
        return f"{{{text}}}" if ": " in text and not text.startswith("{") else text

    @classmethod
    def on_the_command_line(cls) -> str:
        """Its example as `lab fault` takes it: `kill node2`."""
        kind, _, value = cls.example.partition(": ")
        return f"{kind} '{value}'" if " " in value else f"{kind} {value}"

    @property
    def deed(self) -> Mapping[str, Any]:
        """What the worker does itself."""
        return {}

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it is done to."""
        return ()

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that it is done to, where it is done to ranks."""
        return ()

    def check(self, _: Ground) -> None:
        """See, before a run begins, whether it can be done, as far as that can be seen.

        Raises:
            LabError: it cannot.
        """
        return

    def unfit(self, _brought: Sequence[Mapping[str, Any]]) -> str:
        """Why it cannot be done to a call that brings these tensors (see `Reached`); empty: it can."""
        return ""

    def apply(self, ground: Ground) -> None:
        """Do it; it is in force when this returns.

        Raises:
            LabError: it cannot be done.
        """
        raise NotImplementedError

    def renew(self, _ground: Ground, _node: str) -> None:
        """Do it once more to a node that has come back, and knows nothing of it."""
        return

    def met(self, _: Ground) -> Mapping[str, Any]:
        """What it has done by now, by what that is: `{"dropped_packets": 12}`; asked just before it is undone."""
        return {}

    def undo(self, ground: Ground) -> None:
        """Take it back, also where it is not in force, and by somebody who only knows its data.

        Raises:
            LabError: it cannot be taken back.
        """
        raise NotImplementedError

    def read_back(self, ground: Ground) -> ReadBack:
        """How it is, read where it was done.

        Raises:
            LabError: that cannot be read.
        """
        raise NotImplementedError


@cache
def fault_kinds() -> dict[str, type[FaultKind]]:
    """Every kind, by its key."""
    names = sorted(module.name for module in pkgutil.iter_modules(kinds.__path__))
    return {name: import_module(f"{kinds.__name__}.{name}").KIND for name in names}


def key_of(kind: type[FaultKind]) -> str:
    """Its key in a file: the name of its module."""
    return kind.__module__.rpartition(".")[2]
