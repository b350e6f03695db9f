"""Faults as scenarios, command lines and journals say them: what is broken, set off by which event, healed by which."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, make_dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.errors import UsageError
from lab.features.faults.kind import FaultKind, key_of, make_or_refuse
from lab.features.faults.kinds import fault_kinds
from lab.operations import OPERATIONS
from lab.spec import kinds
from lab.spec.declare import dump_keys, key, keys_of, mapping_schema, read_all_keys, read_keys, said_of
from lab.spec.document import read_document, read_value
from lab.spec.kinds import Kind, late, rank, read_text
from lab.spec.reading import Reading, Value
from lab.spec.scenario import MAX_TIMEOUT_S, Expect, Scenario
from lab.words import clip, format_value

if TYPE_CHECKING:
    from lab.features.faults.network import Network

PHASES = (
    *("init_process_group", "new_group", "DDP()", "forward", "loss", "backward", "zero_grad", "step"),
    "destroy_process_group",
)
"""What a worker does, as its recorder marks it."""
EDGES = ("before", "after")
MAX_COUNT = 1_000_000
_BEFORE_THE_RUN = "start"
_LONGEST_SHOWN = 60
_LONGEST_S = 720 * 3600


@dataclass(frozen=True, kw_only=True)
class When:
    """The event; where nothing is said, the time before the run begins."""

    rank: int | None = key(None, rank(), "when: {rank: 1, note: step}", "whichever comes first")
    """The rank whose call, phase, note or line it is."""
    at_s: float | None = key(None, kinds.duration(_LONGEST_S), "when: {at: 2s}", "none", name="at")
    """So long after the workers were let go."""
    log: str | None = key(None, kinds.pattern(), "when: {log: 'epoch 3'}", "none")
    """The rank prints a line in which this is found. It goes on meanwhile: the exact moment is left to chance."""
    note: str | None = key(None, kinds.text("the name of a note"), "when: {note: step}", "none")
    """The rank notes something of this name. It is held in `lab.note` until the fault is in force."""
    equals: Any = key(None, kinds.scalar(), "when: {note: step, equals: 3}", "any")
    """The value that it notes; of a float, one as near as an expected note."""
    op: str | None = key(None, kinds.choice(tuple(OPERATIONS)), "when: {rank: 2, op: all_reduce, count: 3}", "none")
    """The rank calls this operation. It is held at that edge of its call until the fault is in force."""
    phase: str | None = key(None, kinds.choice(PHASES), "when: {rank: 2, phase: backward}", "none")
    """The rank comes to this phase of its work, as its recorder marks it; `forward` is that of a DDP module. It is held
    there until the fault is in force."""
    count: int = key(1, kinds.whole_number(1, MAX_COUNT), "when: {rank: 2, op: all_reduce, count: 3}")
    """The how-manieth of that rank's calls of this operation, or of its phases of this name, counted from 1."""
    edge: str = key("before", kinds.choice(EDGES), "when: {rank: 2, op: all_reduce, edge: after}")
    """`before`: it is about to begin; `after`: it has just ended."""

    def __post_init__(self) -> None:
        """Refuse what is no event.

        Raises:
            UsageError: it names several events, or none and yet something of one.
        """
        said = [name for name in _EVENTS if getattr(self, name) is not None]
        if len(said) > 1:
            raise UsageError(f"a fault is set off by one event, and this is {' and '.join(said)}", "make two of it")
        if "note" not in said and self.equals is not None:
            raise UsageError("a fault that no note sets off has no value", "say which note has it")
        if not said and self.rank is not None:
            raise UsageError("of a rank, a call, a phase, a note or a line sets a fault off", "say which")
        if said in (["op"], ["phase"]) and self.rank is None:
            raise UsageError(f"a fault that a rank's {said[0]} sets off names the rank", "say `rank: 0`, for instance")
        if said not in (["op"], ["phase"]) and (self.count, self.edge) != (1, "before"):
            raise UsageError("count and edge belong to an operation or a phase", "say which")

    @property
    def exact(self) -> bool:
        """Whether the rank is held until the fault is in force, so that every run breaks at the same point."""
        return bool(self.op or self.phase or self.note)


_EVENTS = ("at_s", "log", "note", "op", "phase")
START = When()


def event() -> Kind:
    """An event."""
    allowed = (
        f"{_BEFORE_THE_RUN}, or a mapping such as {{at: 2s}}, {{rank: 2, op: all_reduce, count: 3}}, "
        "{rank: 1, note: step, equals: 3} or {rank: 1, log: 'epoch 3'}"
    )

    def read(value: Value) -> When:
        if value.kind != "mapping":
            if read_text(value, allowed, quotable=False) != _BEFORE_THE_RUN:
                raise value.refused(allowed)
            return START
        if not value.pairs(allowed):
            raise value.refused(allowed, " that says no event")
        data = read_all_keys(value, When)
        return START if data is None else make_or_refuse(value, lambda: When(**data), allowed)

    schema = {"anyOf": [{"const": _BEFORE_THE_RUN}, mapping_schema(When, minProperties=1)]}
    return Kind(allowed, read, schema, lambda when: _BEFORE_THE_RUN if when == START else dump_keys(when))


def when_sentence(data: Any) -> str:
    """An event that a file or a record says, in words: `when rank 0 notes step = 3`."""
    if not isinstance(data, Mapping):
        return "before the run begins"
    who = f"rank {data['rank']}" if "rank" in data else "a rank"
    if "at" in data:
        return f"after {clip(str(data['at']), _LONGEST_SHOWN)}"
    if "log" in data:
        return f"when {who} prints /{clip(str(data['log']), _LONGEST_SHOWN)}/"
    if "op" in data or "phase" in data:
        what = clip(str(data.get("op") or data.get("phase")), _LONGEST_SHOWN)
        verb = "has done" if data.get("edge") == "after" else "comes to"
        return f"when {who} {verb} {what} {data.get('count', 1)}"
    value = f" = {format_value(data['equals'], _LONGEST_SHOWN)}" if "equals" in data else ""
    return f"when {who} notes {clip(str(data.get('note')), _LONGEST_SHOWN)}{value}"


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
        if not self.what.by_worker:
            return
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

    def example(kind: type[FaultKind]) -> str:
        return f"faults: [{{{kind.example}, when: {'{rank: 1, op: all_reduce}' if kind.by_worker else 'start'}}}]"

    named = [
        (_attribute(name), Any, key(None, kind.value(), example(kind), "none", name=name))
        for name, kind in fault_kinds().items()
    ]
    timing = [(one.attribute, Any, key(None, one.kind, one.example, name=one.name)) for one in keys_of(Fault).values()]
    return make_dataclass("FaultKeys", [*named, *timing])


def _attribute(kind: str) -> str:
    """Of the key that names a kind, which may be a word of Python's own."""
    return f"{kind}_"


def fault_list() -> Kind:
    """What is broken, in any order."""
    return kinds.list_of(one_fault(), f"a list, each of it {one_fault().allowed}")


@cache
def one_fault() -> Kind:
    """One fault."""
    names = ", ".join(fault_kinds())
    allowed = f"a mapping with `when` and one of {names}"

    def read(value: Value) -> Fault | None:
        data, named = read_keys(value, _declared()), [name.raw for name, _ in value.pairs(allowed)]
        chosen = [name for name in named if name in fault_kinds()]
        if "when" not in named:
            raise value.refused(allowed, " without when")
        if len(data) < len(named):  # what is wrong with one of its keys has been said
            return None
        if len(chosen) != 1:
            found = " and ".join(chosen) or "none of them"
            raise value.problem(f"a fault is one of {names}, and this is {found}; make each its own")
        what = data.pop(_attribute(chosen[0]))
        return None if what is None else make_or_refuse(value, lambda: Fault(what=what, **data))

    one_of = [{"required": [name]} for name in fault_kinds()]
    return Kind(allowed, read, mapping_schema(_declared(), required=["when"], oneOf=one_of), fault_data)


def fault_data(fault: Fault) -> dict[str, Any]:
    """A fault as a file would say it."""
    return {fault.kind: type(fault.what).value().dump(fault.what), **dump_keys(fault)}


def fault_sentence(data: Mapping[str, Any]) -> str:
    """A fault that a file or a record says, in words: `kill node2 when rank 0 notes step = 3`."""
    what = next((f"{kind} {data[kind]}" for kind in data if kind not in keys_of(Fault)), "nothing")
    ends = f", for {clip(str(data['for']), _LONGEST_SHOWN)}" if "for" in data else ""
    ends += f", healed {when_sentence(data['until'])}" if "until" in data else ""
    return f"{clip(what, _LONGEST_SHOWN)} {when_sentence(data.get('when'))}{ends}"


@dataclass(frozen=True, kw_only=True)
class FaultKeys:
    """Keys of a scenario."""

    network: Network | None = key(
        None, late("lab.features.faults.network", "network"), "network: {rate: 100mbit, delay: 5ms}", "as it is"
    )
    """What the links between nodes are like while it runs: rate, delay, jitter and loss of all of them, or of some, or
    a profile by name, on the docker engine; see networks."""
    faults: tuple[Fault, ...] = key(
        (),
        late("lab.features.faults.fault", "fault_list"),
        "faults: [{kill: node2, when: {rank: 0, note: step}}]",
        "none",
    )
    """What is broken on purpose while it runs, each when its event comes; see Faults."""
    rerun: bool = key(False, kinds.boolean(), "rerun: true")
    """If the run fails because of its faults, run it again without them, with what it left in the shared folder. The
    second run has to pass, and is the one that is reported."""


@dataclass(frozen=True, kw_only=True)
class DetectionKeys:
    """Keys of `expect:`."""

    detected_within_s: float | None = key(
        None, kinds.duration(MAX_TIMEOUT_S), "detected_within: 5s", "not checked", name="detected_within"
    )
    """How long after each fault is in force something has to show it: an end, a loss, a time-out, data that nobody
    acknowledges."""


def broken_in(scenario: Scenario) -> FaultKeys:
    """What a scenario says of faults."""
    return said_of(scenario, FaultKeys)


def detected_within(expect: Expect) -> float | None:
    """How soon each fault has to be noticed, in seconds; None: that is not checked."""
    return said_of(expect, DetectionKeys).detected_within_s


def with_faults(scenario: Scenario, faults: Sequence[Fault], *, rerun: bool = False) -> Scenario:
    """The scenario, in which these faults are done and no others."""
    extra = {name: value for name, value in scenario.extra.items() if name not in ("faults", "rerun")}
    extra |= {"faults": tuple(faults)} if faults else {}
    return replace(scenario, extra={**extra, "rerun": True} if rerun else extra)


_KEY = "faults"


def named_faults(named: Iterable[str]) -> tuple[Fault, ...]:
    """What a command line names: each a fault, or a YAML file with a list of them.

    Raises:
        ScenarioError: one is none; a line a problem.
    """
    files = (".yaml", ".yml")
    found = (read_faults(Path(one)) if one.endswith(files) else (parse_fault(one),) for one in named)
    return tuple(fault for faults in found for fault in faults)


def read_faults(path: Path) -> tuple[Fault, ...]:
    """The faults in a file: a list, or a mapping with the key `faults`, such as a scenario.

    Raises:
        ScenarioError: it says no faults; a line a problem.
    """
    reading, found = Reading(path), tuple[Fault, ...]()
    with reading.attempt():
        value = Value(read_document(path), "", reading)
        if value.kind == "mapping":
            named = {name.raw: one for name, one in value.pairs(fault_list().allowed)}
            if _KEY not in named:
                raise value.problem(f"it has no key {_KEY}; allowed: {fault_list().allowed}")
            value = named[_KEY]
        value.field = _KEY
        found = tuple(fault_list().read(value))
    reading.raise_if_any()
    return found


def parse_fault(text: str) -> Fault:
    """A fault as `--fault` has it: `kill: node2, when: {at: 2s}`, with or without braces around it.

    Raises:
        ScenarioError: it is none; a line a problem.
    """
    in_braces = text if text.lstrip().startswith("{") else f"{{{text}}}"
    fault: Fault = read_value(one_fault(), in_braces, "--fault", "fault")
    return fault


def parse_kind(kind: str, text: str) -> FaultKind:
    """What a fault of this kind does: its value as a file would say it.

    Raises:
        ScenarioError: it is none; a line a problem.
    """
    what: FaultKind = read_value(fault_kinds()[kind].value(), text, "lab fault", kind)
    return what


def kind_data(what: FaultKind) -> dict[str, Any]:
    """What it does, as a file would say it: `{"kill": "node2"}`."""
    return {key_of(type(what)): type(what).value().dump(what)}


def kind_of(data: Mapping[str, Any]) -> FaultKind:
    """The inverse of `kind_data`.

    Raises:
        ScenarioError: another version of the lab wrote it.
    """
    (kind, value), *_ = data.items()
    return parse_kind(kind, json.dumps(value))
