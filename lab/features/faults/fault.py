"""One thing that is broken on purpose: what, set off by which event, healed by which, or after how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, make_dataclass
from functools import cache
from typing import Any

from lab.errors import UsageError
from lab.features.faults.kind import FaultKind, fault_kinds, key_of
from lab.features.faults.when import START, When, event, said_well, when_sentence
from lab.operations import OPERATIONS
from lab.spec import kinds
from lab.spec.declare import dump_keys, key, keys_of, read_keys
from lab.spec.reading import Value
from lab.words import clip

_LONGEST_S = 720 * 3600
_LONGEST_SHOWN = 60


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is broken, and when; without an end it is healed when the run is over."""

    what: FaultKind
    when: When = key(MISSING, event(), "when: {rank: 2, op: all_reduce, count: 3}")
    """The event that sets it off; `start`: before the run begins."""
    until: When | None = key(None, event(), "until: {rank: 0, note: step, equals: 5}", "the end of the run")
    """The event that heals it."""
    for_s: float | None = key(None, kinds.duration(_LONGEST_S), "for: 3s", "until the end of the run", name="for")
    """How long it is in force."""

    def __post_init__(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            UsageError: it has two ends, or its event does not hold the worker that is to do it.
        """
        if self.until is not None and self.for_s is not None:
            raise UsageError("a fault ends after a time or at an event, not at both", "leave `for` or `until` out")
        if self.until == START:
            raise UsageError("a fault cannot be healed before the run begins", "say an event of the run")
        if self.what.by_worker:
            self._refuse_what_no_worker_can_do()

    def _refuse_what_no_worker_can_do(self) -> None:
        if not self.when.exact:
            raise UsageError(
                f"{self} is done by the rank itself, which has to be held for it",
                "set it off by a call, a phase or a note of that rank",
            )
        if self.when.rank not in self.what.ranks:
            raise UsageError(
                f"{self} is done by that rank itself, so its event is one of the same rank", "name it there"
            )
        if self.until is not None:
            raise UsageError(f"{self} is done by the rank itself, which hears of no event", "say `for`, or neither")
        operation = OPERATIONS.get(self.when.op or "")
        brings = operation is not None and operation.moves_data and not operation.receives
        if self.what.of_call and not (brings and self.when.edge == "before"):
            raise UsageError(
                f"{self} is done to what a call brings",
                "set it off before a call of an operation that takes tensors, such as {op: all_reduce}",
            )

    @property
    def deed(self) -> Mapping[str, Any]:
        """What the worker does itself, and for how long."""
        return {name: {**said, "for_s": self.for_s} for name, said in self.what.deed.items()}

    @property
    def kind(self) -> str:
        """The key that says what is done."""
        return key_of(type(self.what))

    def __str__(self) -> str:
        """`kill node2`."""
        return str(self.what)


@cache
def _declared() -> type:
    """The keys of a fault in a file: one for each kind, and those that say when."""
    named = [
        (_attribute(name), Any, key(None, kind.value(), _example(kind), "none", name=name))
        for name, kind in fault_kinds().items()
    ]
    timing = [(one.attribute, Any, key(None, one.kind, one.example, name=one.name)) for one in keys_of(Fault).values()]
    return make_dataclass("FaultKeys", [*named, *timing])


def _example(kind: type[FaultKind]) -> str:
    """A fault of a kind in a file, with an event that can set it off."""
    return f"faults: [{{{kind.example}, when: {'{rank: 1, op: all_reduce}' if kind.by_worker else 'start'}}}]"


def _attribute(kind: str) -> str:
    """Of the key that names a kind, which may be a word of Python's own."""
    return f"{kind}_"


def fault_list() -> kinds.Kind:
    """What is broken, in any order."""
    return kinds.list_of(one_fault(), f"a list, each of it {one_fault().allowed}")


@cache
def one_fault() -> kinds.Kind:
    """One fault."""
    allowed = f"a mapping with `when` and one of {', '.join(fault_kinds())}"

    def read(value: Value) -> Fault | None:
        data, named = read_keys(value, _declared()), [name.raw for name, _ in value.pairs(allowed)]
        said = [name for name in named if name in fault_kinds()]
        if "when" not in named:
            raise value.refused(allowed, " without when")
        if len(data) < len(named):  # what is wrong with one of its keys has been said
            return None
        if len(said) != 1:
            found = " and ".join(said) or "none of them"
            raise value.problem(f"a fault is one of {', '.join(fault_kinds())}, and this is {found}; make each its own")
        what = data.pop(_attribute(said[0]))
        if what is None:
            return None
        fault: Fault = said_well(value, lambda: Fault(what=what, **data))
        return fault

    properties = {one.name: one.kind.schema for one in keys_of(_declared()).values()}
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": ["when"],
        "oneOf": [{"required": [name]} for name in fault_kinds()],
    }
    return kinds.Kind(allowed, read, schema, fault_data)


def fault_data(fault: Fault) -> dict[str, Any]:
    """A fault as a file would say it."""
    return {fault.kind: type(fault.what).value().dump(fault.what), **dump_keys(fault)}


def fault_sentence(data: Mapping[str, Any]) -> str:
    """A fault that a file or a record says, in words: `kill node2 when rank 0 notes step = 3`."""
    what = next((f"{kind} {data[kind]}" for kind in data if kind not in keys_of(Fault)), "nothing")
    ends = f", for {clip(str(data['for']), _LONGEST_SHOWN)}" if "for" in data else ""
    ends += f", healed {when_sentence(data['until'])}" if "until" in data else ""
    return f"{clip(what, _LONGEST_SHOWN)} {when_sentence(data.get('when'))}{ends}"
