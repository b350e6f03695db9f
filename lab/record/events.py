"""Facts of a run besides output and traces, as typed values: one line each in `events.jsonl`.

Messages of agents about workers are kept as received.
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
"""Later Unix times are damage."""


class Clock(NamedTuple):
    """The offset of a node's clock from this machine's."""

    time: float
    node: str
    offset_s: float = 0.0
    error_s: float = 0.0
    """The uncertainty of the offset."""
    boot: str = ""
    """Identity of its clock: nodes with the same one share a monotonic clock."""
    address: str = ""
    """Its address for other nodes."""
    monotonic_s: float = 0.0
    """Its monotonic clock at `time`; 0: unknown."""


class NodeLost(NamedTuple):
    """A node was lost during the run."""

    time: float
    node: str
    how: str = ""
    """How, as the end of a sentence that begins with its name."""


class NodeCame(NamedTuple):
    """A node joined during the run: it was late, or is back."""

    time: float
    node: str


class NodeTroubled(NamedTuple):
    """A node does not work, according to its engine."""

    time: float
    node: str
    how: str = ""
    """Why, as the end of a sentence that begins with its name; empty: it works again."""
    silent: bool = True
    """Whether its agent cannot answer either; otherwise it only lacks its network."""


class EngineLost(NamedTuple):
    """The engine stopped answering, and so did a node."""

    time: float
    node: str = ""
    reason: str = ""


class Refusal(NamedTuple):
    """An agent refused to start the run."""

    time: float
    node: str = ""
    reason: str = ""


class TimedOut(NamedTuple):
    """The time limit passed."""

    time: float
    timeout_s: float | None = None
    """The time limit, if the plan does not have it."""
    starting_s: float = 0.0
    """Seconds that launchers needed to start the first rank, which do not count."""
    early: bool = False
    """Whether the lab ended the run before the limit, because ranks waited for what cannot come."""
    stalled_s: float = 0.0
    """Seconds without progress after which it did so; 0: it was certain."""


class Cancelled(NamedTuple):
    """The user interrupted the run."""

    time: float


class Over(NamedTuple):
    """No rank is running any more."""

    time: float
    duration_s: float = 0.0
    """Seconds since the workers started."""


class Restarted(NamedTuple):
    """The launcher restarted the workers: another attempt follows."""

    time: float


class Misunderstood(NamedTuple):
    """A message of an agent could not be parsed."""

    time: float
    node: str = ""
    reason: str = ""


class Dumped(NamedTuple):
    """The run was not observed: its ranks' dumps contain all that is known."""

    time: float
    lacks: tuple[str, ...] = ()
    """What the dumps do not contain, a sentence each."""
    messages: bool = True
    """Whether they contain messages between two ranks."""


class NotShipped(NamedTuple):
    """A module or file that a rank did not find is on the machine that started the run."""

    time: float
    module: str = ""
    """Its name, or the path of a file as the rank named it."""
    path: str = ""
    folder: str = ""
    """The shipped folder."""


class Fault(NamedTuple):
    """A fault is in force."""

    time: float
    fault: str = "fault"
    rank: int | None = None
    """The rank whose call, phase, note, or line triggered it."""
    node: str = ""
    """The node that it acts on, if it is one."""
    why: str = ""
    """Its trigger: `rank 0 noted step = 3`; empty: it was injected before the run began."""
    number: int | None = None
    """Its index in the plan, from 0."""
    begun: float | None = None
    """Unix time of its trigger; a rank that was held for it has waited since."""
    op: str = ""
    """The operation, or phase, at which its rank was held."""
    call: int | None = None
    """The number, from 1, of that rank's call of the operation, or of its phase of that name."""
    measured: dict[str, Any] | None = None
    """Measurements where it was injected, by name; its key in the record is `found`."""


class FaultFailed(NamedTuple):
    """A fault could not be injected."""

    time: float
    fault: str = "fault"
    node: str = ""
    reason: str = ""


class FaultHealed(NamedTuple):
    """A fault was undone."""

    time: float
    fault: str = "fault"
    number: int | None = None
    """Its index in the plan, from 0."""
    why: str = ""
    """What ended it: `rank 0 noted step = 5`, `after 3 s`, `the run ended`."""


_ByAgents = (
    agent.Started | agent.Note | agent.Named | agent.Stack | agent.Halted | agent.Exited | agent.Limited | agent.Joined
    | agent.Connections | agent.Staged
)  # fmt: skip
"""Messages of agents, with times of their nodes' clocks."""
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
"""Names of events in a record that differ from their class, unlike `timed out`: a renamed class keeps its old name
here."""
_NAMES: dict[type[Any], str] = {
    kind: _OTHER_NAMES.get(kind) or re.sub(r"\B(?=[A-Z])", " ", kind.__name__).lower() for kind in get_args(Event)
}
_KINDS = {name: kind for kind, name in _NAMES.items()}


def by_lab_clock(event: Event, ahead: Mapping[str, float]) -> Event:
    """Return an event with its times by the clock of the lab's machine, given each node's clock offset in seconds."""
    if not ahead or not isinstance(event, _ByAgents) or not ahead.get(event.node):
        return event
    moved: dict[str, Any] = {"time": event.time - ahead[event.node]}
    if isinstance(event, agent.Exited) and event.raised is not None:
        moved["raised"] = event.raised - ahead[event.node]
    return event._replace(**moved)


def event_line(event: Event) -> bytes:
    """Return an event as a line of the file."""
    fields = {"found" if name == "measured" else name: value for name, value in event._asdict().items()}
    data = {"event": _NAMES[type(event)], **fields}
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"


def read_event(data: Any) -> Event | None:
    """Return the event on a line; None if it is damaged, or of an unknown kind."""
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
