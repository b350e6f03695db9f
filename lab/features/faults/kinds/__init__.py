"""The base of fault kinds; each kind is a class with an example in a module of this package."""

from __future__ import annotations

import json
import pkgutil
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
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
"""The worst effect on a run: it takes longer with the same result; it loses a rank or node and may fail; data changes.
"""


class Chance(Frozen):
    """Draws faults for a run."""

    random: Random
    nodes: Sequence[str]
    """The nodes of the run."""
    ranks: Sequence[int]
    """The world size of the run."""

    def one_of(self, choices: Sequence[T]) -> T:
        """Return one of the choices, each with the same probability."""
        return self.random.choice(choices)


class FaultKind(Frozen, ABC):
    """One kind of fault: its data, and how to inject it, which may take seconds."""

    does: ClassVar[str]
    """Its effect, as a line for the reference."""
    example: ClassVar[str]
    """Its key and value, as a file writes them: `kill: node2`. A class with an example is a kind."""
    main_key: ClassVar[str] = ""
    """The key of the short form; empty: the first one."""
    template: ClassVar[str] = "{key} {node}"
    """Its description, with the values of its attributes: `kill node2`."""
    by_worker: ClassVar[bool] = False
    """Whether the worker injects it (`worker_actions`), which needs a call, phase, or note that holds the worker."""
    of_writes: ClassVar[bool] = False
    """Whether it acts on ranks' writes to files; the agent then filters writes from the start of the ranks."""
    of_call: ClassVar[bool] = False
    """Whether it changes the tensors of a call: only before an operation that sends data."""
    leaves_running: ClassVar[bool | None] = None
    """Whether its nodes run afterwards; None: as before."""
    harm: ClassVar[Harm] = "loses"
    """The worst effect on a run, if it is healed after a while."""
    passes: ClassVar[bool] = False
    """Whether a search heals it after a while although it loses a rank or node: otherwise retries never end."""
    draws: ClassVar[Mapping[str, Sequence[Any]] | None] = None
    """Choices of a search, by attribute, besides what it acts on; None: no search draws it."""
    needs: ClassVar[Need] = ""
    """What it needs of the engine, besides running nodes."""
    strict_cannot: ClassVar[str] = ""
    """Why strict clusters do not support it, as the end of a sentence about the fault; empty: they do."""

    @classmethod
    def short(cls) -> Kind | None:
        """Return the kind of its short form, if at most one key is required: the value of that key."""
        name = cls.main_key or next(iter(keys_of(cls)))
        if required_keys(cls) not in ([], [name]):
            return None
        main, kind = keys_of(cls)[name].attribute, keys_of(cls)[name].kind
        return Kind(kind.allowed, lambda value: cls(**{main: kind.read(value)}), kind.schema)

    @classmethod
    def value(cls) -> Kind:
        """Return the kind of its value: a mapping with its own keys, or the short form."""
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
        """Return why an engine does not support it, as the end of a sentence about the fault; empty: it does."""
        return traits_of(engine).cannot.get(cls.needs, "")

    @classmethod
    def targets(cls, chance: Chance) -> Sequence[Any]:
        """Return the values of its first key that a search may choose."""
        return chance.ranks if "rank" in keys_of(cls) else chance.nodes

    @classmethod
    def drawn(cls, chance: Chance) -> FaultKind | None:
        """Draw one for a search; None: no search draws this kind, or there is no target."""
        targets = cls.targets(chance)
        if cls.draws is None or not targets:
            return None
        main = next(iter(keys_of(cls).values())).attribute
        values = {main: targets, **cls.draws}
        return cls(**{name: chance.one_of(choices) for name, choices in values.items()})

    @classmethod
    def parse(cls, words: Sequence[str]) -> str:
        """Convert the words of a command line to the value in a file.

        Raises:
            UsageError: There are too few words, or too many.
        """
        keys, text = [*keys_of(cls)], " ".join(words)
        if len(words) == 2 and len(keys) > 1:
            text = f"{keys[0]}: {words[0]}, {keys[1]}: {words[1]}"
        return f"{{{text}}}" if ": " in text and not text.startswith("{") else text

    @classmethod
    def on_the_command_line(cls) -> str:
        """Return its example for `lab fault`: `kill node2`."""
        kind, _, value = cls.example.partition(": ")
        return f"{kind} '{value}'" if " " in value else f"{kind} {value}"

    def __str__(self) -> str:
        return self.template.format(key=key_of(type(self)), **vars(self))

    @property
    def amounts(self) -> dict[str, Any]:
        """The values of its keys, by attribute, without the first one, which names what it acts on."""
        _, *others = keys_of(type(self)).values()
        return {one.attribute: getattr(self, one.attribute) for one in others}

    @property
    def worker_actions(self) -> Mapping[str, Any]:
        """Actions of the worker itself: the values of all keys but the rank, see `on_node.holds`."""
        return {key_of(type(self)): self.amounts} if self.by_worker else {}

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it acts on, which its value names."""
        return named_nodes(json.dumps(dump_keys(self)))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that it acts on, if it acts on ranks."""
        return (vars(self)["rank"],) if "rank" in vars(self) else ()

    def check(self, _: ClusterTarget) -> None:
        """Check before a run begins, as far as possible, whether it can be injected.

        Raises:
            LabError: It cannot.
        """
        return

    def unfit(self, _tensors: Sequence[Mapping[str, Any]]) -> str:
        """Return why it cannot act on a call with these tensors (see `Reached`); empty: it can."""
        return ""

    def apply(self, target: ClusterTarget) -> None:
        """Inject it; it is in force when this returns.

        Raises:
            LabError: It cannot be injected.
        """
        raise NotImplementedError

    def renew(self, _: ClusterTarget) -> None:
        """Inject it again after a node started: the node has lost it and may have another address."""
        return

    def count_effects(self, _: ClusterTarget) -> Mapping[str, Any]:
        """Return its effects so far, such as `{"dropped_packets": 12}`; called before it is undone."""
        return {}

    def undo(self, target: ClusterTarget) -> None:
        """Undo it, even if it is not in force, from its data only.

        Raises:
            LabError: It cannot be undone.
        """
        raise NotImplementedError

    def read_back(self, target: ClusterTarget) -> dict[str, Any]:
        """Measure its state: `in_force`, and numbers with units in their names, such as `asked_bits_per_s`.

        Raises:
            LabError: It cannot be measured.
        """
        raise NotImplementedError


_PAUSE_S = 0.005


class AgentFault(FaultKind):
    """A kind that an agent injects, by its action `by_agent`."""

    by_agent: ClassVar[str]
    patience_s: ClassVar[float] = 0.0
    """Seconds after the injection within which it has to come into force."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Arguments of the agent's action."""
        return vars(self)

    def node_in(self, _: ClusterTarget) -> str:
        """Return the node of the agent."""
        return self.nodes[0]

    def apply(self, target: ClusterTarget) -> None:
        """Have the agent inject it."""
        target.ask(self.node_in(target), f"apply_{self.by_agent}", self.arguments)
        if self.patience_s:
            poll_until(lambda: self.read_back(target)["in_force"], self.patience_s, _PAUSE_S)

    def undo(self, target: ClusterTarget) -> None:
        """Have the agent undo it; a node that does not run forgets it."""
        node = self.node_in(target)
        if target.running(node):
            target.ask(node, f"undo_{self.by_agent}", self.arguments)

    def read_back(self, target: ClusterTarget) -> dict[str, Any]:
        """Have the agent inspect it."""
        return target.ask(self.node_in(target), f"inspect_{self.by_agent}", self.arguments)


def required_keys(kind: type[FaultKind]) -> list[str]:
    """Return the keys of a kind without defaults."""
    return [name for name, one in keys_of(kind).items() if one.default is MISSING]


def read_fault(kind: type[FaultKind], value: Value, allowed: str) -> Any:
    """Read a fault from the mapping of its keys; None if a key is invalid.

    Raises:
        InvalidError: A key is missing, or the fault is invalid.
    """
    if not (named := {name.raw for name, _ in value.pairs(allowed)}):
        raise value.refused(allowed, ", which has no keys")
    if missing := [name for name in required_keys(kind) if name not in named]:
        raise value.problem(f"without {' and '.join(missing)}; allowed: {allowed}")
    data = read_all_keys(value, kind)
    return None if data is None else make_or_refuse(value, lambda: kind(**data))


def make_or_refuse(value: Value, make: Callable[[], T], allowed: str = "") -> T:
    """Return the result of `make`; turn its `UsageError` into a problem of the value.

    Raises:
        InvalidError: There was one.
    """
    try:
        return make()
    except UsageError as error:
        raise value.problem(f"{error.message}; allowed: {allowed}" if allowed else error.message) from None


def key_of(kind: type[FaultKind]) -> str:
    """Return the key of a kind in a file."""
    return kind.example.partition(":")[0]


@cache
def fault_kinds() -> dict[str, type[FaultKind]]:
    """Return each kind by its key: the classes in this package that define their own example."""
    modules = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    classes = [one for module in modules for one in vars(module).values() if "example" in getattr(one, "__dict__", ())]
    return {key_of(one): one for one in sorted(classes, key=key_of)}
