"""The faults of a scenario: what is broken on purpose in mid-run, and the event that sets it off.

A kind of fault is a field of `Fault` here, and a module of `lab.fault` of that name, which does it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any

from lab.errors import UsageError
from lab.spec import expect, kinds
from lab.spec.keys import dump_keys, key, keys_of, read_keys
from lab.spec.value import Value
from lab.words import clip, format_value

_LONGEST_SHOWN = 60
_BEFORE_THE_RUN = "start"
_NODE = "node(0|[1-9][0-9]{0,3})"


def _node() -> kinds.Kind:
    """The name of a node."""
    allowed = "the name of a node, such as node2"

    def read(value: Value) -> str:
        word = kinds.read_text(value, allowed)
        nodes = expect.World.of(value.reading).nodes
        if not re.fullmatch(_NODE, word) or (nodes and int(word.removeprefix("node")) >= nodes):
            raise value.refused(f"a node from node0 to node{nodes - 1}" if nodes else allowed)
        return word

    return kinds.Kind(allowed, read, {"type": "string", "pattern": f"^{_NODE}$"})


def _plain() -> kinds.Kind:
    """A number, text or a boolean."""
    allowed = "a number, text, true or false"

    def read(value: Value) -> Any:
        if value.kind in ("list", "mapping", "nothing"):
            raise value.refused(allowed)
        return expect.scalar(value)

    return kinds.Kind(allowed, read, {"type": ["number", "string", "boolean"]})


@dataclass(frozen=True, kw_only=True)
class When:
    """The event that sets a fault off; where nothing is said, the time before the run begins."""

    rank: int | None = key(
        None, expect.rank(), "faults: [{stop: node2, when: {rank: 1, note: step}}]", "whichever comes first"
    )
    """The rank whose note or line it is."""
    note: str | None = key(
        None, kinds.text("the name of a note"), "faults: [{stop: node2, when: {note: step}}]", "none"
    )
    """It notes something of this name."""
    value: Any = key(None, _plain(), "faults: [{stop: node2, when: {note: step, value: 3}}]", "any")
    """The value that it notes; of a float, one as near as an expected note."""
    log: str | None = key(None, kinds.pattern(), "faults: [{stop: node2, when: {log: 'epoch 3'}}]", "none")
    """It prints a line in which this is found."""

    def __post_init__(self) -> None:
        """Refuse what is no event.

        Raises:
            UsageError: it names both a note and a line, or neither and yet something of them.
        """
        if self.note is not None and self.log is not None:
            raise UsageError("a fault is set off by a note or by a line in a log, not by both", "make two of it")
        if self.note is None and self.value is not None:
            raise UsageError("a fault that no note sets off has no value", "say which note has it")
        if self.note is None and self.log is None and self.rank is not None:
            raise UsageError("a fault is set off by a note or by a line in a log", "say what the rank notes or prints")


START = When()


def _when() -> kinds.Kind:
    """An event."""
    allowed = (
        f"{_BEFORE_THE_RUN}, or a mapping such as {{rank: 1, note: step, value: 3}} or {{rank: 1, log: 'epoch 3'}}"
    )

    def read(value: Value) -> When:
        if value.kind != "mapping":
            if kinds.read_text(value, allowed, quotable=False) != _BEFORE_THE_RUN:
                raise value.refused(allowed)
            return START
        data, named = read_keys(value, When), value.pairs(allowed)
        if not named:
            raise value.refused(allowed, " that says neither note nor log")
        if len(data) < len(named):  # what is wrong with one of its keys has been said
            return START
        try:
            return When(**data)
        except UsageError as error:
            raise value.problem(f"{error.message}; allowed: {allowed}") from None

    properties = {one.name: one.kind.schema for one in keys_of(When).values()}
    either = [{"required": ["note"]}, {"required": ["log"]}]
    mapping = {"type": "object", "additionalProperties": False, "properties": properties, "oneOf": either}
    return kinds.Kind(
        allowed,
        read,
        {"anyOf": [{"const": _BEFORE_THE_RUN}, mapping]},
        lambda when: _BEFORE_THE_RUN if when == START else dump_keys(when),
    )


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is broken on purpose: of the keys but `when`, one says what."""

    stop: str = key("", _node(), "faults: [{stop: node2, when: {log: ready}}]", "none")
    """A node loses its power, as `lab stop` cuts it. When the run is over it gets it back."""
    start: str = key("", _node(), "faults: [{start: node2, when: {log: ready}}]", "none")
    """A node that was stopped gets its power back, as with `lab start`."""
    when: When = key(MISSING, _when(), "faults: [{stop: node2, when: start}]")
    """The event that sets it off; `start`: before the run begins."""

    def __post_init__(self) -> None:
        """Refuse what is no fault.

        Raises:
            UsageError: it is none, or several in one.
        """
        said = [kind for kind in KINDS if getattr(self, kind)]
        if len(said) != 1:
            found = " and ".join(said) or "none of them"
            raise UsageError(f"a fault is one of {', '.join(KINDS)}, and this is {found}", "make each one of its own")

    @property
    def kind(self) -> str:
        """What is done: the name of the key that says so."""
        return next(kind for kind in KINDS if getattr(self, kind))

    @property
    def node(self) -> str:
        """The node that it is done to."""
        return str(getattr(self, self.kind))

    def __str__(self) -> str:
        """`stop node2`."""
        return f"{self.kind} {self.node}"


KINDS = tuple(name for name in keys_of(Fault) if name != "when")
"""What can be done, in the order of their declaration."""


def fault_list() -> kinds.Kind:
    """What is broken, in any order."""
    allowed = f"a mapping with `when` and one of {', '.join(KINDS)}"

    def read(value: Value) -> Fault | None:
        data, named = read_keys(value, Fault), [name.raw for name, _ in value.pairs(allowed)]
        if "when" not in named:
            raise value.refused(allowed, " without when")
        if len(data) < len(named):  # what is wrong with one of its keys has been said
            return None
        try:
            return Fault(**data)
        except UsageError as error:
            raise value.problem(error.message) from None

    properties = {one.name: one.kind.schema for one in keys_of(Fault).values()}
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": ["when"],
        "minProperties": 2,
        "maxProperties": 2,
    }
    return kinds.list_of(kinds.Kind(allowed, read, schema, dump_keys), f"a list, each of it {allowed}")


def fault_data(fault: Fault) -> dict[str, Any]:
    """A fault as a file would say it."""
    return dump_keys(fault)


def fault_sentence(data: Mapping[str, Any]) -> str:
    """A fault that a file or a record says, in words: `stop node2 when rank 0 notes step = 3`."""
    what = next((f"{kind} {data[kind]}" for kind in data if kind != "when"), "nothing")
    return f"{clip(what, _LONGEST_SHOWN)} {_when_sentence(data.get('when'))}"


def _when_sentence(when: Any) -> str:
    if not isinstance(when, Mapping):
        return "before the run begins"
    who = f"rank {when['rank']}" if "rank" in when else "a rank"
    if "log" in when:
        return f"when {who} prints /{clip(str(when['log']), _LONGEST_SHOWN)}/"
    value = f" = {format_value(when['value'], _LONGEST_SHOWN)}" if "value" in when else ""
    return f"when {who} notes {clip(str(when.get('note')), _LONGEST_SHOWN)}{value}"
