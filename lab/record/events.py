"""The facts of a run besides output and traces: one line each in `events.jsonl`, read and written as typed values.

What an agent says of a worker stands there as it was said.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from lab.node.messages import agent
from lab.node.messages.typed import Misfit, read_typed
from lab.node.statement import problem_with
from lab.record.layout import MOST_RANKS

_LATEST = 1e11
"""Unix times beyond are damage."""


class Clock(NamedTuple):
    """How far a node's clock is ahead of this machine's."""

    time: float
    node: str
    offset_s: float = 0.0
    error_s: float = 0.0
    """How wrong the offset may be."""
    boot: str = ""
    """Identity of its clock: nodes with the same one share a monotonic clock."""
    address: str = ""
    """By which other nodes reach it."""
    monotonic_s: float = 0.0
    """What its monotonic clock showed at `time`; 0: it was not asked."""


class NodeLost(NamedTuple):
    """A node went away in mid-run."""

    time: float
    node: str
    how: str = ""
    """How it ended, as the end of a sentence that begins with its name."""


class NodeCame(NamedTuple):
    """A node was taken into the run in mid-run: it was late, or is back."""

    time: float
    node: str


class NodeTroubled(NamedTuple):
    """Something keeps a node from working, as its engine sees it."""

    time: float
    node: str
    how: str = ""
    """What, as the end of a sentence that begins with its name; empty: it is over."""
    silent: bool = True
    """Whether its agent cannot answer either; else it is its network that it lacks."""


class EngineLost(NamedTuple):
    """The engine stopped answering, and so did a node."""

    time: float
    node: str = ""
    reason: str = ""


class Refusal(NamedTuple):
    """An agent would not start the run."""

    time: float
    node: str = ""
    reason: str = ""


class TimedOut(NamedTuple):
    """The time limit passed."""

    time: float
    timeout_s: float | None = None
    """How long that was, where the plan does not say."""
    starting_s: float = 0.0
    """How long launchers had taken to start the first rank, which does not count."""


class Cancelled(NamedTuple):
    """Somebody interrupted the run."""

    time: float


class Over(NamedTuple):
    """No rank is running now."""

    time: float
    duration_s: float = 0.0
    """Seconds since the workers were let go."""


class Restarted(NamedTuple):
    """The launcher began the workers anew: another attempt follows."""

    time: float


class Misunderstood(NamedTuple):
    """An agent said something in mid-run that could not be read."""

    time: float
    node: str = ""
    reason: str = ""


class Dumped(NamedTuple):
    """The run was not seen: what is known of it, its ranks had left in dumps while they ran."""

    time: float
    lacks: tuple[str, ...] = ()
    """What the dumps do not tell, a sentence each."""
    messages: bool = True
    """Whether they tell of messages between two ranks."""


class NotShipped(NamedTuple):
    """A module that a rank did not find is a file on the machine from which the run was started."""

    time: float
    module: str = ""
    path: str = ""
    folder: str = ""
    """What was shipped."""


class Fault(NamedTuple):
    """A fault is in force."""

    time: float
    fault: str = "fault"
    rank: int | None = None
    """Whose call, phase, note or line had set it off."""
    node: str = ""
    """The node that it is done to, where that is one."""
    why: str = ""
    """What had set it off: `rank 0 noted step = 3`; empty: it was done before the run began."""
    number: int | None = None
    """Its place in the plan, from 0."""
    begun: float | None = None
    """Unix time at which its event had come; a rank that was held for it has waited since."""
    op: str = ""
    """The operation, or phase, at which its rank was held."""
    call: int | None = None
    """The how-manieth of that rank's calls of the operation, or of its phases of that name, from 1."""
    measured: dict[str, Any] | None = None
    """Measurements where it was injected, by name; its key in the record is `found`."""


class FaultFailed(NamedTuple):
    """A fault could not be applied."""

    time: float
    fault: str = "fault"
    node: str = ""
    reason: str = ""


class FaultHealed(NamedTuple):
    """A fault was taken back."""

    time: float
    fault: str = "fault"
    number: int | None = None
    """Its place in the plan, from 0."""
    why: str = ""
    """What had healed it: `rank 0 noted step = 5`, `after 3 s`, `the run ended`."""


_ByAgents = (
    agent.Started | agent.Note | agent.Named | agent.Stack | agent.Halted | agent.Exited | agent.Limited | agent.Joined
    | agent.LeftRunning | agent.Connections | agent.Staged
)  # fmt: skip
"""What agents say, by the clocks of their nodes."""
Event = (
    _ByAgents | agent.ThreadRaised | Clock | NodeLost | NodeCame | NodeTroubled | EngineLost | Refusal | TimedOut
    | Cancelled | Over | Restarted | Misunderstood | Dumped | NotShipped | Fault | FaultFailed | FaultHealed
)  # fmt: skip

_OTHER_NAMES = {
    agent.Named: "backend named",
    agent.Limited: "limit reached",
    Refusal: "refused",
    Cancelled: "interrupted",
}
"""What events are called in a record, where that is not the name of their class, as in `timed out`: a class that gets
another name keeps its old one here."""
_NAMES: dict[type[Any], str] = {
    kind: _OTHER_NAMES.get(kind) or re.sub(r"\B(?=[A-Z])", " ", kind.__name__).lower() for kind in get_args(Event)
}
_KINDS = {name: kind for kind, name in _NAMES.items()}


def by_lab_clock(event: Event, ahead: Mapping[str, float]) -> Event:
    """The same with its times by the clock of the lab's machine; of each node it is said how far its own is ahead."""
    if not ahead or not isinstance(event, _ByAgents) or not ahead.get(event.node):
        return event
    moved: dict[str, Any] = {"time": event.time - ahead[event.node]}
    if isinstance(event, agent.Exited) and event.raised is not None:
        moved["raised"] = event.raised - ahead[event.node]
    return event._replace(**moved)


def event_line(event: Event) -> bytes:
    """An event as the line that it takes in the file."""
    fields = {"found" if name == "measured" else name: value for name, value in event._asdict().items()}
    data = {"event": _NAMES[type(event)], **fields}
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"


def read_event(data: Any) -> Event | None:
    """The event on a line; None where it is damaged, or of a kind that is not known."""
    kind = data.get("event") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        return None
    try:
        fields = {"measured" if name == "found" else name: value for name, value in data.items()}
        event: Event = read_typed(_KINDS[kind], fields, lenient=True)
    except Misfit:
        return None
    moments = [event.time, *((event.offset_s, event.error_s, event.monotonic_s) if isinstance(event, Clock) else ())]
    deep = isinstance(event, agent.Note) and problem_with(event.value)
    if deep or any(abs(moment) >= _LATEST for moment in moments):
        return None
    rank = getattr(event, "rank", None) or 0
    return event if agent.STARTER <= (agent.worker_of(rank) if agent.is_joined(rank) else rank) < MOST_RANKS else None
