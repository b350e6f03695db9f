"""Faults in scenarios, command lines, and journals: kinds, triggers, and whether a run supports them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, make_dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lab.errors import UsageError
from lab.features.faults.kinds import FaultKind, fault_kinds, key_of, make_or_refuse
from lab.features.faults.kinds.links import Network, network_of
from lab.frozen import Frozen
from lab.operations import OPERATIONS
from lab.plan.plan import Part, PlanOptions
from lab.spec import kinds
from lab.spec.declare import dump_keys, get_feature_values, key_field, keys_of, mapping_schema, read_all_keys, read_keys
from lab.spec.document import read_document, read_value
from lab.spec.reading import Reading, Value
from lab.spec.scenario import MAX_TIMEOUT_S, Expect, Scenario
from lab.words import clip_end, format_value, join_words

if TYPE_CHECKING:
    from lab.plan.cluster import ClusterInfo
    from lab.run.options import RunOptions

PHASES = (
    *("init_process_group", "new_group", "DDP()", "forward", "loss", "backward", "zero_grad", "step"),
    "destroy_process_group",
)
"""Phases of a worker, by its recorder's names."""
EDGES = ("before", "after")
MAX_COUNT = 1_000_000
_BEFORE_THE_RUN = "start"
_LONGEST_SHOWN = 60
_LONGEST_S = 720 * 3600


def _scalar() -> kinds.Kind:
    """Return the kind of numbers, texts, and booleans."""
    allowed = "a number, text, true, or false"

    def read(value: Value) -> Any:
        if value.kind in ("list", "mapping", "nothing"):
            raise value.refused(allowed)
        return kinds.read_scalar(value)

    return kinds.Kind(allowed, read, {"type": ["number", "string", "boolean"]})


class When(Frozen):
    """The event; by default, the time before the run begins."""

    rank: int | None = key_field(None, kinds.rank_kind(), "when: {rank: 1, note: step}", "the first rank that does it")
    """The rank of the call, phase, note, or line."""
    at_s: float | None = key_field(None, kinds.duration_kind(_LONGEST_S), "when: {at: 2s}", "none", name="at")
    """This long after the workers started."""
    log: str | None = key_field(None, kinds.regex_kind(), "when: {log: 'epoch 3'}", "none")
    """The rank prints a line that matches. It does not wait, so the moment is not exact."""
    note: str | None = key_field(None, kinds.text_kind("the name of a note"), "when: {note: step}", "none")
    """The rank notes this name. It waits in `lab.note` until the fault is active."""
    equals: Any = key_field(None, _scalar(), "when: {note: step, equals: 3}", "any")
    """The noted value; floats with the tolerance of notes."""
    op: str | None = key_field(
        None, kinds.choice_kind(tuple(OPERATIONS)), "when: {rank: 2, op: all_reduce, count: 3}", "none"
    )
    """The rank calls this operation. It waits there until the fault is active."""
    phase: str | None = key_field(None, kinds.choice_kind(PHASES), "when: {rank: 2, phase: backward}", "none")
    """The rank reaches this phase; `forward` is that of a DDP module. It waits there until the fault is active."""
    count: int = key_field(1, kinds.whole_number(1, MAX_COUNT), "when: {rank: 2, op: all_reduce, count: 3}")
    """Which of the rank's calls of this operation, or phases of this name, from 1."""
    edge: str = key_field("before", kinds.choice_kind(EDGES), "when: {rank: 2, op: all_reduce, edge: after}")
    """`before` it starts, or `after` it ended."""

    def __post_init__(self) -> None:
        """Refuse an invalid event.

        UsageError: It names several events, or fields of an event that it does not name.
            UsageError: it names several events, or fields of an event that it does not name.
        """
        names = [name for name in _EVENTS if getattr(self, name) is not None]
        is_counted = names in (["op"], ["phase"])
        if len(names) > 1:
            raise UsageError(f"a fault has one trigger, not {join_words(names)}", "write a fault for each trigger")
        if self.equals is not None and self.note is None:
            raise UsageError("`equals` compares a note, but this trigger has no `note`", "add `note: NAME`")
        if self.rank is not None and not names:
            raise UsageError("`rank` alone is no trigger", "add `op`, `phase`, `note`, or `log`")
        if self.rank is None and is_counted:
            raise UsageError(f"a trigger with `{names[0]}` needs a rank", "add `rank: 0`, for instance")
        if not is_counted and (self.count, self.edge) != (1, "before"):
            raise UsageError("`count` and `edge` need an operation or a phase", "add `op: NAME` or `phase: NAME`")

    @property
    def exact(self) -> bool:
        """Whether the rank is held until the fault is in force, so that every run breaks at the same point."""
        return bool(self.op or self.phase or self.note)


_EVENTS = ("at_s", "log", "note", "op", "phase")
START = When()


def event_kind() -> kinds.Kind:
    """Return the kind of events."""
    allowed = (
        f"{_BEFORE_THE_RUN}, or a mapping such as {{at: 2s}}, {{rank: 2, op: all_reduce, count: 3}}, "
        "{rank: 1, note: step, equals: 3} or {rank: 1, log: 'epoch 3'}"
    )

    def read(value: Value) -> When:
        if value.kind != "mapping":
            if kinds.read_text(value, allowed, quotable=False) != _BEFORE_THE_RUN:
                raise value.refused(allowed)
            return START
        if not value.pairs(allowed):
            raise value.refused(allowed, ", which has no event")
        data = read_all_keys(value, When)
        return START if data is None else make_or_refuse(value, lambda: When(**data), allowed)

    schema = {"anyOf": [{"const": _BEFORE_THE_RUN}, mapping_schema(When, minProperties=1)]}
    return kinds.Kind(allowed, read, schema, lambda when: _BEFORE_THE_RUN if when == START else dump_keys(when))


def when_sentence(data: Any) -> str:
    """Return an event of a file or record in words: `when rank 0 notes step = 3`."""
    if not isinstance(data, Mapping):
        return "before the run begins"
    fields = {name: clip_end(str(value), _LONGEST_SHOWN) for name, value in data.items()}
    who = f"rank {data['rank']}" if "rank" in data else "a rank"
    if "at" in fields:
        return f"after {fields['at']}"
    if "log" in fields:
        return f"when {who} prints /{fields['log']}/"
    if what := fields.get("op") or fields.get("phase"):
        verb = "has done" if data.get("edge") == "after" else "comes to"
        return f"when {who} {verb} {what} {data.get('count', 1)}"
    value = f" = {format_value(data['equals'], _LONGEST_SHOWN)}" if "equals" in data else ""
    return f"when {who} notes {fields.get('note')}{value}"


class Fault(Frozen):
    """A fault and its events; without an end, it is healed when the run is over."""

    what: FaultKind
    when: When = key_field(MISSING, event_kind(), "when: {rank: 2, op: all_reduce, count: 3}")
    """The event that starts it; `start`: before the run."""
    until: When | None = key_field(None, event_kind(), "until: {rank: 0, note: step, equals: 5}", "the end of the run")
    """The event that heals it."""
    for_s: float | None = key_field(
        None, kinds.duration_kind(_LONGEST_S), "for: 3s", "until the end of the run", name="for"
    )
    """How long it lasts."""

    def __post_init__(self) -> None:
        """Refuse a contradiction.

        Raises:
            UsageError: It has two ends, or its trigger does not hold the worker that injects it.
        """
        if self.until is not None and self.for_s is not None:
            raise UsageError("a fault has one end, but this fault has `for` and `until`", "remove one of them")
        if self.until == START:
            raise UsageError("a fault cannot end before the run begins", "name an event of the run in `until`")
        if self.what.by_worker:
            self._refuse_what_no_worker_does()

    def _refuse_what_no_worker_does(self) -> None:
        if not self.when.exact:
            hint = "use `op`, `phase`, or `note` as the trigger"
            raise UsageError(f"the rank itself injects {self}, so the trigger has to hold that rank", hint)
        if self.when.rank not in self.what.ranks:
            why = f"the rank itself injects {self}, so the trigger has to name the same rank"
            raise UsageError(why, "set `rank` in `when`")
        if self.until is not None:
            raise UsageError(f"the rank itself injects {self} and cannot wait for `until`", "use `for`, or neither")
        operation = OPERATIONS.get(self.when.op or "")
        sends_data = operation is not None and operation.moves_data and not operation.receives
        if self.what.of_call and not (sends_data and self.when.edge == "before"):
            hint = "trigger it before a call of an operation that takes tensors, such as {op: all_reduce}"
            raise UsageError(f"{self} changes the tensors of a call, but its trigger is not a call with tensors", hint)

    def events(self) -> list[tuple[When, bool]]:
        """Return its trigger and the event that heals it, each with whether it heals."""
        return [(self.when, False), *([(self.until, True)] if self.until is not None else [])]

    @property
    def worker_actions(self) -> Mapping[str, Any]:
        """Actions of the worker itself, and their duration."""
        return {name: {**amounts, "for_s": self.for_s} for name, amounts in self.what.worker_actions.items()}

    @property
    def kind(self) -> str:
        """The key of its kind."""
        return key_of(type(self.what))

    def __str__(self) -> str:
        """`kill node2`."""
        return str(self.what)


@cache
def _declared() -> type:
    """Return the keys of a fault in a file: one for each kind, and those of its events."""
    named = []
    for name, kind in fault_kinds().items():
        when = "{rank: 1, op: all_reduce}" if kind.by_worker else "start"
        example = f"faults: [{{{kind.example}, when: {when}}}]"
        named.append((f"{name}_", Any, key_field(None, kind.value(), example, "none", name=name)))
    timing = [(it.attribute, Any, key_field(None, it.kind, it.example, name=it.name)) for it in keys_of(Fault).values()]
    return make_dataclass("FaultKeys", [*named, *timing])


def fault_list() -> kinds.Kind:
    """Return the kind of lists of faults, in any order."""
    return kinds.list_of(one_fault(), f"a list, each of it {one_fault().allowed}")


@cache
def one_fault() -> kinds.Kind:
    """Return the kind of one fault."""
    names = ", ".join(fault_kinds())
    allowed = f"a mapping with `when` and one of {names}"

    def read(value: Value) -> Fault | None:
        data, named = read_keys(value, _declared()), [name.raw for name, _ in value.pairs(allowed)]
        chosen = [name for name in named if name in fault_kinds()]
        if "when" not in named:
            raise value.refused(allowed, ", which has no `when`")
        if len(data) < len(named):  # the problems of its keys have been reported
            return None
        if len(chosen) != 1:
            chosen_names = join_words(chosen) or "none of them"
            raise value.problem(f"found {chosen_names} in one fault; allowed: one of {names}; write a fault for each")
        what = data.pop(f"{chosen[0]}_")  # the name of a kind may be a keyword of Python
        return None if what is None else make_or_refuse(value, lambda: Fault(what=what, **data))

    one_of = [{"required": [name]} for name in fault_kinds()]
    return kinds.Kind(allowed, read, mapping_schema(_declared(), required=["when"], oneOf=one_of), fault_data)


def fault_data(fault: Fault) -> dict[str, Any]:
    """Return a fault as a file writes it."""
    return {fault.kind: type(fault.what).value().dump(fault.what), **dump_keys(fault)}


def fault_sentence(data: Mapping[str, Any]) -> str:
    """Return a fault of a file or record in words: `kill node2 when rank 0 notes step = 3`."""
    what = next((f"{kind} {data[kind]}" for kind in data if kind not in keys_of(Fault)), "nothing")
    ends = f", for {clip_end(str(data['for']), _LONGEST_SHOWN)}" if "for" in data else ""
    ends += f", healed {when_sentence(data['until'])}" if "until" in data else ""
    return f"{clip_end(what, _LONGEST_SHOWN)} {when_sentence(data.get('when'))}{ends}"


class FaultKeys(Frozen):
    """Keys of a scenario."""

    network: Network | None = key_field(None, Network.value(), "network: {rate: 100mbit, delay: 5ms}", "as it is")
    """Rate, delay, jitter, and loss of links between nodes, or a profile; docker engine only; see networks."""
    faults: tuple[Fault, ...] = key_field(
        (),
        kinds.lazy_kind("lab.features.faults.fault", "fault_list"),
        "faults: [{kill: node2, when: {rank: 0, note: step}}]",
        "none",
    )
    """The faults to inject during the run, and when; see Faults."""
    rerun: bool = key_field(False, kinds.boolean_kind(), "rerun: true")
    """If the run fails because of its faults, run it again without them on the same shared folder. That second run has
    to pass."""


class DetectionKeys(Frozen):
    """Keys of `expect:`."""

    detected_within_s: float | None = key_field(
        None, kinds.duration_kind(MAX_TIMEOUT_S), "detected_within: 5s", "not checked", name="detected_within"
    )
    """How long after the start of each fault its effect has to be in the record: an end, a loss, a time-out, or
    unacknowledged data."""


def broken_in(scenario: Scenario) -> FaultKeys:
    """Return the fault keys of a scenario."""
    return get_feature_values(scenario, FaultKeys)


def detected_within(expect: Expect) -> float | None:
    """Return the seconds within which each fault has to be noticed; None: not checked."""
    return get_feature_values(expect, DetectionKeys).detected_within_s


def with_faults(scenario: Scenario, faults: Sequence[Fault], *, rerun: bool = False) -> Scenario:
    """Return the scenario with these faults and no others."""
    extra = {name: value for name, value in scenario.extra.items() if name not in ("faults", "rerun")}
    extra |= {"faults": tuple(faults)} if faults else {}
    return replace(scenario, extra={**extra, "rerun": True} if rerun else extra)


def named_faults(named: Iterable[str]) -> tuple[Fault, ...]:
    """Parse the faults of a command line: each a fault, or a YAML file with a list of them.

    Raises:
        ScenarioError: A fault is invalid; a line for each problem.
    """
    faults: list[Fault] = []
    for one in named:
        if one.endswith((".yaml", ".yml")):
            reading = Reading(Path(one))
            with reading.attempt():
                faults += fault_list().read(Value(read_document(Path(one)), "faults", reading))
            reading.raise_if_any()
        else:
            faults.append(parse_fault(one))
    return tuple(faults)


def parse_fault(text: str) -> Fault:
    """Parse a fault of `--fault`: `kill: node2, when: {at: 2s}`, with or without braces around it.

    Raises:
        ScenarioError: it is invalid; a line for each problem.
    """
    in_braces = text if text.lstrip().startswith("{") else f"{{{text}}}"
    return cast("Fault", read_value(one_fault(), in_braces, "--fault", "fault"))


def parse_kind(kind: str, text: str) -> FaultKind:
    """Parse the value of a fault of this kind, as a file writes it.

    Raises:
        ScenarioError: it is invalid; a line for each problem.
    """
    return cast("FaultKind", read_value(fault_kinds()[kind].value(), text, "lab fault", kind))


def kind_data(what: FaultKind) -> dict[str, Any]:
    """Return a fault's key and value as a file writes them: `{"kill": "node2"}`."""
    return {key_of(type(what)): type(what).value().dump(what)}


def kind_of(data: Mapping[str, Any]) -> FaultKind:
    """Parse the output of `kind_data`.

    Raises:
        ScenarioError: another version of the lab wrote it.
    """
    (kind, value), *_ = data.items()
    return parse_kind(kind, json.dumps(value))


class FaultsPart(Part):
    """The faults of a plan."""

    faults: tuple[Fault, ...]
    name: str = "faults"
    companion: str = "lab.features.faults.companion:Faults"

    def data(self) -> list[dict[str, Any]]:
        """Return each fault as a file writes it."""
        return [fault_data(fault) for fault in self.faults]

    def sentences(self) -> list[str]:
        """Return a line for each fault."""
        return [f"fault: {fault_sentence(one)}" for one in self.data()]

    def before(self) -> list[tuple[str, str, bool]]:
        """Return the faults that stop or start nodes before the run begins, each node, and whether it then runs."""
        before = self._before()
        return [(str(one), node, bool(one.what.leaves_running)) for one in before for node in one.what.nodes]

    def starting(self) -> list[str]:
        """Return the faults that start nodes during the run."""
        return [str(fault) for fault in self.faults if fault.what.leaves_running and fault not in self._before()]

    def _before(self) -> list[Fault]:
        return [fault for fault in self.faults if fault.when == START and fault.what.leaves_running is not None]


def plan_faults(
    scenario: Scenario, options: PlanOptions, cluster: ClusterInfo, nnodes: int, world_size: int
) -> FaultsPart | None:
    """Plan the faults and the network of a run; None if there are none.

    Raises:
        ScenarioError: the network is invalid.
        UsageError: the run does not support a fault.
    """
    faults = all_faults(scenario, options.network, options.faults)
    if not faults and detected_within(scenario.expect) is None:
        return None
    off = "LAB_RECORDER is off" if scenario.env.get("LAB_RECORDER") == "off" else ""
    unrecorded = off if options.trace and scenario.trace.on else "the run does not record calls"
    refuse_faults(faults, scenario.name, cluster, nnodes, world_size, unrecorded)
    return FaultsPart(faults=faults)


def all_faults(
    scenario: Scenario, network: str | Mapping[str, Any] | None = None, extra_faults: Sequence[Fault] = ()
) -> tuple[Fault, ...]:
    """Return the faults of a run after its network; the lab injects, checks, and undoes the network like a fault.

    Raises:
        ScenarioError: the network is invalid.
    """
    declared = broken_in(scenario)
    network_condition = declared.network if network is None else network_of(network)
    first = [] if network_condition is None else [Fault(what=network_condition, when=START)]
    return (*first, *declared.faults, *extra_faults)


def explain_unsupported(faults: Sequence[Fault], engine: str) -> str:
    """Explain why an engine does not support a fault, in a sentence that begins with it; empty if it supports all."""
    return next((f"{fault}, which {why}" for fault in faults if (why := fault.what.why_not(engine))), "")


def beyond_engine(scenario: Scenario, engine: str) -> str:
    """Explain why an engine does not support a fault of a scenario; empty if it supports all."""
    return explain_unsupported(all_faults(scenario), engine)


def plan_rerun(scenario: Scenario, options: RunOptions) -> tuple[Scenario, RunOptions] | None:
    """Return a scenario and options without faults, if the scenario asks for a rerun; else None."""
    declared = broken_in(scenario)
    if not (declared.rerun and declared.faults):
        return None
    return with_faults(scenario, ()), replace(options, faults=(), fresh=False)


def refuse_faults(
    faults: Sequence[Fault], name: str, cluster: ClusterInfo, nnodes: int, world_size: int, unrecorded: str = ""
) -> None:
    """Refuse faults that this run does not support.

    Args:
        faults: Of the run.
        name: Of the scenario.
        cluster: Of the run.
        nnodes: How many of its nodes take part.
        world_size: Number of ranks.
        unrecorded: Why the run does not record calls, as a clause; empty: it does.

    Raises:
        UsageError: The engine does not support a fault, or its node or rank is not part of the run.
    """
    nodes = [f"node{rank}" for rank in range(nnodes)]
    if refusal := explain_unsupported(faults, cluster.engine):
        raise UsageError(f"{name} injects {refusal}")
    for fault in faults:
        is_to, events = f"{name} injects {fault}", [event for event, _ in fault.events()]
        if cluster.shape.strict and fault.what.strict_cannot:
            raise UsageError(f"{is_to}, which {fault.what.strict_cannot}", "run it without --strict")
        if unrecorded and any(event.op or event.phase for event in events):
            hint = "record the run, or use a note, a line, or a time as the trigger"
            raise UsageError(f"{is_to} at a call or phase, where the recorder holds the rank, but {unrecorded}", hint)
        if absent := [node for node in fault.what.nodes if node not in nodes]:
            verb = "is" if len(absent) == 1 else "are"
            there = " to ".join(dict.fromkeys(("node0", nodes[-1])))
            raise UsageError(f"{is_to}, but {join_words(absent)} {verb} not part of this run", f"the run has {there}")
        for number in (*fault.what.ranks, *(event.rank or 0 for event in events)):
            if number >= world_size:
                raise UsageError(f"{is_to}, but rank {number} is not part of this run: world_size is {world_size}")
