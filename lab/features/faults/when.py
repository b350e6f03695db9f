"""The event that sets a fault off, or heals it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.errors import UsageError
from lab.operations import OPERATIONS
from lab.spec import kinds
from lab.spec.declare import dump_keys, key, keys_of, read_keys
from lab.spec.kinds import rank
from lab.spec.reading import Value
from lab.words import clip, format_value

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


def event() -> kinds.Kind:
    """An event."""
    allowed = (
        f"{_BEFORE_THE_RUN}, or a mapping such as {{at: 2s}}, {{rank: 2, op: all_reduce, count: 3}}, "
        "{rank: 1, note: step, equals: 3} or {rank: 1, log: 'epoch 3'}"
    )

    def read(value: Value) -> When:
        if value.kind != "mapping":
            if kinds.read_text(value, allowed, quotable=False) != _BEFORE_THE_RUN:
                raise value.refused(allowed)
            return START
        data, named = read_keys(value, When), value.pairs(allowed)
        if not named:
            raise value.refused(allowed, " that says no event")
        if len(data) < len(named):  # what is wrong with one of its keys has been said
            return START
        found: When = said_well(value, lambda: When(**data), allowed)
        return found

    properties = {one.name: one.kind.schema for one in keys_of(When).values()}
    mapping = {"type": "object", "additionalProperties": False, "properties": properties, "minProperties": 1}
    return kinds.Kind(
        allowed,
        read,
        {"anyOf": [{"const": _BEFORE_THE_RUN}, mapping]},
        lambda when: _BEFORE_THE_RUN if when == START else dump_keys(when),
    )


def said_well(value: Value, make: Any, allowed: str = "") -> Any:
    """What `make` returns; a `UsageError` of it is a problem of the value.

    Raises:
        InvalidError: it is one.
    """
    try:
        return make()
    except UsageError as error:
        raise value.problem(f"{error.message}; allowed: {allowed}" if allowed else error.message) from None


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
