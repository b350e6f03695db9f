"""What a kind of fault is; each kind is a class with an example in one of the modules here."""

from __future__ import annotations

import json
import pkgutil
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import cache
from importlib import import_module
from random import Random
from typing import Any, ClassVar, Literal, TypeVar

from lab.engine.protocol import Need
from lab.engine.select import traits_of
from lab.errors import UsageError
from lab.features.faults.network import named_nodes
from lab.features.faults.target import ClusterTarget
from lab.frozen import Frozen
from lab.polling import poll_until
from lab.spec.declare import dump_keys, keys_of, mapping_schema, read_all_keys
from lab.spec.kinds import Kind
from lab.spec.reading import Value

T = TypeVar("T")
Harm = Literal["slows", "loses", "spoils"]
"""What a run may suffer: it takes longer and comes out the same; it loses somebody and may fail; data is changed."""


class Chance(Frozen):
    """What decides where a fault is drawn for a run."""

    random: Random
    nodes: Sequence[str]
    """Of the run."""
    ranks: Sequence[int]
    """Of the run."""

    def one_of(self, choices: Sequence[T]) -> T:
        """One of them, each as likely as any other."""
        return self.random.choice(choices)


@dataclass(frozen=True)
class ReadBack:
    """The state of a fault, measured where it was injected."""

    in_force: bool
    measured: Mapping[str, Any] = field(default_factory=dict)
    """What was measured, by what it is, with its unit in the name: `{"asked_bits_per_s": 1e8}`."""


class FaultKind(Frozen, ABC):
    """One kind of fault: its data, and how it is injected, which may take seconds."""

    does: ClassVar[str]
    """What it breaks, a line for the reference."""
    example: ClassVar[str]
    """Its key and value, as a file writes them: `kill: node2`. A class with an example is a kind of its own."""
    main_key: ClassVar[str] = ""
    """The key that says all in short; empty: the first one."""
    template: ClassVar[str] = "{key} {node}"
    """What it is in words, with the values of its attributes: `kill node2`."""
    shown_as: ClassVar[tuple[str, ...]]
    """Causes of a culprit, or kinds of findings, that are right for it; empty: it breaks nothing."""
    by_worker: ClassVar[bool] = False
    """Whether the worker itself does it, as `worker_actions` says: only where its call, phase or note holds it."""
    of_writes: ClassVar[bool] = False
    """Whether it acts on what ranks write to files: that has to be seen from their start."""
    of_call: ClassVar[bool] = False
    """Whether it acts on the tensors that a call brings: only before one that takes some."""
    leaves_running: ClassVar[bool | None] = None
    """Whether its nodes run afterwards; None: as before."""
    harm: ClassVar[Harm] = "loses"
    """What a run may suffer from it at most, where it is healed after a while."""
    passes: ClassVar[bool] = False
    """Whether a search has it healed after a while, though it loses somebody: else those who try again try for ever."""
    draws: ClassVar[Mapping[str, Sequence[Any]] | None] = None
    """What a search chooses from, by attribute, beside what it acts on; None: no search draws one."""
    needs: ClassVar[Need] = ""
    """What it needs of the engine, beside that its nodes run."""
    strict_cannot: ClassVar[str] = ""
    """Why a strict cluster cannot have it, as the end of a sentence; empty: it can."""

    @classmethod
    def short(cls) -> Kind | None:
        """How its value is said in short, where no key but one is required: by the value of that one."""
        name = cls.main_key or next(iter(keys_of(cls)))
        if required_keys(cls) not in ([], [name]):
            return None
        main, kind = keys_of(cls)[name].attribute, keys_of(cls)[name].kind
        return Kind(kind.allowed, lambda value: cls(**{main: kind.read(value)}), kind.schema)

    @classmethod
    def value(cls) -> Kind:
        """What the value of its key may be: a mapping with keys of its own, or what is said in short."""
        keys, short = keys_of(cls), cls.short()
        mapping_of = ", ".join(f"{key} ({one.kind.allowed})" for key, one in keys.items())
        is_mapping = len(keys) > 1
        schemas: list[Mapping[str, Any]] = [mapping_schema(cls, required=required_keys(cls))] * is_mapping
        words = [f"a mapping with the keys {mapping_of}"] * is_mapping
        if short is not None:
            words, schemas = [short.allowed, *words], [short.schema, *schemas]
        allowed = ", or ".join(words)

        def read(value: Value) -> Any:
            has_keys = value.kind == "mapping" and (is_mapping or [one.raw for one, _ in value.pairs("")] == [*keys])
            return read_fault(cls, value, allowed) if has_keys or short is None else short.read(value)

        def dump(data: Any) -> Any:
            values = dump_keys(data)
            return values[name] if [*values] == [name] else values

        name = cls.main_key or next(iter(keys))
        return Kind(allowed, read, schemas[0] if len(schemas) == 1 else {"anyOf": schemas}, dump)

    @classmethod
    def why_not(cls, engine: str) -> str:
        """Why an engine cannot do it, as the end of a sentence that begins with the fault; empty: it can."""
        return traits_of(engine).cannot.get(cls.needs, "")

    @classmethod
    def targets(cls, chance: Chance) -> Sequence[Any]:
        """What a search may have it act on."""
        return chance.ranks if "rank" in keys_of(cls) else chance.nodes

    @classmethod
    def drawn(cls, chance: Chance) -> FaultKind | None:
        """One of its kind, for a search; None: no search draws one."""
        if cls.draws is None:
            return None
        (main, *_) = keys_of(cls)
        values = {main: cls.targets(chance), **cls.draws}
        return cls(**{name: chance.one_of(choices) for name, choices in values.items()})

    @classmethod
    def parse(cls, words: Sequence[str]) -> str:
        """What a command line says of it, as the value in a file would.

        Raises:
            UsageError: it says too little, or too much.
        """
        keys, text = [*keys_of(cls)], " ".join(words)
        if len(words) == 2 and len(keys) > 1:
            text = f"{keys[0]}: {words[0]}, {keys[1]}: {words[1]}"
        return f"{{{text}}}" if ": " in text and not text.startswith("{") else text

    @classmethod
    def on_the_command_line(cls) -> str:
        """Its example as `lab fault` takes it: `kill node2`."""
        kind, _, value = cls.example.partition(": ")
        return f"{kind} '{value}'" if " " in value else f"{kind} {value}"

    def __str__(self) -> str:
        return self.template.format(key=key_of(type(self)), **vars(self))

    @property
    def amounts(self) -> dict[str, Any]:
        """The values of its keys, by attribute, without the first one, which says what it acts on."""
        _, *others = keys_of(type(self)).values()
        return {one.attribute: getattr(self, one.attribute) for one in others}

    @property
    def worker_actions(self) -> Mapping[str, Any]:
        """What the worker does itself: the values of all keys but the rank, see `on_node.holds`."""
        return {key_of(type(self)): self.amounts} if self.by_worker else {}

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it acts on: those that its value names."""
        return named_nodes(json.dumps(dump_keys(self)))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that it acts on, where it acts on ranks."""
        return (vars(self)["rank"],) if "rank" in vars(self) else ()

    def check(self, _: ClusterTarget) -> None:
        """See, before a run begins, whether it can be injected, as far as that can be seen.

        Raises:
            LabError: it cannot.
        """
        return

    def unfit(self, _tensors: Sequence[Mapping[str, Any]]) -> str:
        """Why it cannot be done to a call that brings these tensors (see `Reached`); empty: it can."""
        return ""

    def apply(self, target: ClusterTarget) -> None:
        """Inject it; it is in force when this returns.

        Raises:
            LabError: it cannot be injected.
        """
        raise NotImplementedError

    def renew(self, _: ClusterTarget) -> None:
        """Inject it once more, where a node has come back that knows nothing of it, maybe with another address."""
        return

    def count_effects(self, _: ClusterTarget) -> Mapping[str, Any]:
        """What it has done by now, by what that is: `{"dropped_packets": 12}`; asked just before it is undone."""
        return {}

    def undo(self, target: ClusterTarget) -> None:
        """Take it back, also where it is not in force, and by somebody who only knows its data.

        Raises:
            LabError: it cannot be taken back.
        """
        raise NotImplementedError

    def read_back(self, target: ClusterTarget) -> ReadBack:
        """Read its state where it was injected.

        Raises:
            LabError: that cannot be read.
        """
        raise NotImplementedError


_PAUSE_S = 0.005


class AgentFault(FaultKind):
    """A kind that an agent injects, by its action `by_agent`."""

    by_agent: ClassVar[str]
    patience_s: ClassVar[float] = 0.0
    """How long after its injection it may take until it is in force."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What the agent needs to know."""
        return vars(self)

    def node_in(self, _: ClusterTarget) -> str:
        """The node whose agent it is."""
        return self.nodes[0]

    def apply(self, target: ClusterTarget) -> None:
        """Have the agent inject it."""
        target.ask(self.node_in(target), f"apply_{self.by_agent}", self.arguments)
        if self.patience_s:
            poll_until(lambda: self.read_back(target).in_force, self.patience_s, _PAUSE_S)

    def undo(self, target: ClusterTarget) -> None:
        """Have the agent take it back; a node that does not run forgets it."""
        node = self.node_in(target)
        if target.running(node):
            target.ask(node, f"undo_{self.by_agent}", self.arguments)

    def read_back(self, target: ClusterTarget) -> ReadBack:
        """Have the agent inspect it."""
        measured = {**target.ask(self.node_in(target), f"inspect_{self.by_agent}", self.arguments)}
        return ReadBack(measured.pop("in_force"), measured)


def required_keys(kind: type[FaultKind]) -> list[str]:
    """The keys of a kind that have no default."""
    return [name for name, one in keys_of(kind).items() if one.default is MISSING]


def read_fault(kind: type[FaultKind], value: Value, allowed: str) -> Any:
    """A fault from the mapping of its keys; None where one of them is a problem.

    Raises:
        InvalidError: a key is missing, or the fault is none.
    """
    named = {name.raw for name, _ in value.pairs(allowed)}
    if not named:
        raise value.refused(allowed, " that says nothing")
    missing = [name for name in required_keys(kind) if name not in named]
    if missing:
        raise value.problem(f"without {' and '.join(missing)}; allowed: {allowed}")
    data = read_all_keys(value, kind)
    return None if data is None else make_or_refuse(value, lambda: kind(**data))


def make_or_refuse(value: Value, make: Callable[[], T], allowed: str = "") -> T:
    """What `make` returns; a `UsageError` of it is a problem of the value.

    Raises:
        InvalidError: it is one.
    """
    try:
        return make()
    except UsageError as error:
        raise value.problem(f"{error.message}; allowed: {allowed}" if allowed else error.message) from None


def key_of(kind: type[FaultKind]) -> str:
    """The key of a kind in a file."""
    return kind.example.partition(":")[0]


@cache
def fault_kinds() -> dict[str, type[FaultKind]]:
    """Every kind, by its key: the classes in the modules here that have an example of their own."""
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    classes = [one for module in modules for one in vars(module).values() if "example" in getattr(one, "__dict__", ())]
    return {key_of(one): one for one in sorted(classes, key=key_of)}
