"""What a diagnosis finds, as data: a kind and its facts. `lab.diagnosis.wording` renders the sentences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass
from enum import Enum
from typing import Any, Literal, TypeVar

from lab.frozen import dataclass

T = TypeVar("T")


def majority(by_rank: Mapping[int, T]) -> tuple[T | None, tuple[int, ...]]:
    """What more than half of the ranks have, and who has something else; None and nobody where there is no majority."""
    common, count = Counter(by_rank.values()).most_common(1)[0] if by_rank else (None, 0)
    if 2 * count <= len(by_rank):
        return None, ()
    return common, tuple(sorted(rank for rank, what in by_rank.items() if what != common))


class FindingKind(str, Enum):
    """What sort of thing was found, with its properties; `docs/explain.md` describes each."""

    # value, order, and which of `_PROPERTIES` it has
    CUT_OFF = "cut_off", 0, "ends"
    OUTSIDE = "outside", 0, "ends"
    CONNECTION_RESET = "connection_reset", 0, "ends"
    RENDEZVOUS = "rendezvous", 0, "ends blameless"
    GROUPS = "groups", 0, "ends blameless"
    MISMATCH = "mismatch", 0, "ends blameless by_calls"
    DTYPE = "dtype", 0, "ends blameless by_calls misfit"
    SHAPE = "shape", 0, "ends blameless by_calls misfit"
    REDUCE_OP = "reduce_op", 0, "ends blameless"
    ROOT = "root", 0, "ends blameless by_calls"
    SPLITS = "splits", 0, "ends blameless misfit"
    SLIPPED = "slipped", 0, "ends by_calls"
    UNMATCHED = "unmatched", 0, "ends blameless by_calls"
    DEADLOCK = "deadlock", 0, "ends blameless"
    NEVER_ENTERED = "never_entered", 0, "ends absence"
    LEFT_EARLY = "left_early", 0, "ends absence"
    WENT_ALONE = "went_alone", 0, "ends absence"
    LATE = "late", 0, "ends"
    ELSEWHERE = "elsewhere", 0, "ends"
    FAILED = "failed", 0, "ends"
    LAUNCHER = "launcher", 0, "ends"
    IN_FLIGHT = "in_flight", 0, "ends"
    NOT_KNOWN = "not_known", 0, "ends"
    OWN_CODE = "own_code", 0, "ends"
    WAITING = "waiting", 0, "ends"
    OUT_OF_TIME = "out_of_time", 0, "ends"
    COUNTS = "counts", 0, ""
    # Wrong though nothing fails.
    PARAMETER_ORDER = "parameter_order", 0, ""
    DIVERGED = "diverged", 0, ""
    WRONG_RESULT = "wrong_result", 0, ""
    CHANGED_BEFORE_WAIT = "changed_before_wait", 0, ""
    NONFINITE = "nonfinite", 0, ""
    OUTLIER = "outlier", 0, ""
    SAME_VALUES = "same_values", 0, ""
    # What else is true of a run.
    SLOW_LINK = "slow_link", 1, ""
    ATTEMPT = "attempt", 2, ""
    STRAGGLER = "straggler", 3, ""
    DDP_COUNTED = "ddp_counted", 4, "usual"
    DDP_VERIFIED = "ddp_verified", 4, "usual"
    DDP_STATE = "ddp_state", 4, "usual"
    DDP_BUFFERS = "ddp_buffers", 4, ""
    DDP_REDUCED = "ddp_reduced", 4, ""
    DDP_COMPRESSED = "ddp_compressed", 4, ""
    DDP_REBUILT = "ddp_rebuilt", 4, ""
    DDP_OVERLAP = "ddp_overlap", 4, ""
    DDP_UNUSED = "ddp_unused", 4, ""
    DDP_OTHER = "ddp_other", 4, ""
    DDP_SILENT = "ddp_silent", 4, ""
    TIME = "time", 5, ""
    ACCOUNT = "account", 6, "usual"
    THREAD = "thread", 7, ""
    BACKEND = "backend", 8, ""
    STARTED = "started", 9, ""

    order: int
    """Where an explanation has it: causes come first, what is true of every run comes last."""
    properties: frozenset[str]

    def __new__(cls, value: str, order: int = 0, properties: str = "") -> FindingKind:
        """A member with its properties."""
        kind = str.__new__(cls, value)
        kind._value_, kind.order, kind.properties = value, order, frozenset(properties.split())
        return kind

    def __str__(self) -> str:
        """Its name, as in records."""
        return str(self.value)

    @property
    def ends_a_run(self) -> bool:
        """Whether it can be why a run hung or failed."""
        return "ends" in self.properties

    @property
    def names_nobody_for_sure(self) -> bool:
        """Whether, where it names nobody, nobody can be named."""
        return "blameless" in self.properties

    @property
    def names_by_calls(self) -> bool:
        """Whether it tells more of whom it names than where that rank stood: it names a culprit by its calls."""
        return "by_calls" in self.properties

    @property
    def is_absence(self) -> bool:
        """Whether it is about a rank that was not where others needed it."""
        return "absence" in self.properties

    @property
    def is_misfit(self) -> bool:
        """Whether ranks brought to one operation what does not fit together."""
        return "misfit" in self.properties

    @property
    def is_usual(self) -> bool:
        """Whether it says of most runs the same."""
        return "usual" in self.properties


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What every finding tells; the facts of most kinds tell more."""

    ranks: tuple[int, ...] = ()
    """Whose doing it is; empty where nobody can be named."""
    others: tuple[int, ...] = ()
    """Who else took part or suffered."""
    link: str = ""
    """The link between two nodes that it is about, where it is neither's doing: `node0 - node2`."""
    step: str = ""
    """The collective or message that it is about, such as `all_reduce #3`."""
    lines: tuple[str, ...] = ()
    """The lines of the script, `file:line`; those of `ranks` first."""
    seconds: float | None = None
    """How long the others waited, or whatever time the finding is about."""

    def __post_init__(self) -> None:
        """Name each line once."""
        vars(self)["lines"] = tuple(dict.fromkeys(filter(None, self.lines)))


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that the facts of a run show."""

    kind: FindingKind
    facts: Facts

    @property
    def ranks(self) -> tuple[int, ...]:
        """Whose doing it is; empty where nobody can be named."""
        return self.facts.ranks

    @property
    def others(self) -> tuple[int, ...]:
        """Who else took part or suffered."""
        return self.facts.others

    @property
    def link(self) -> str:
        """The link between two nodes that it is about, where it is neither's doing."""
        return self.facts.link

    @property
    def step(self) -> str:
        """The collective or message that it is about."""
        return self.facts.step

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of the script; those of `ranks` first."""
        return self.facts.lines

    @property
    def seconds(self) -> float | None:
        """How long the others waited, or whatever time it is about."""
        return self.facts.seconds

    @property
    def sentence(self) -> str:
        """The finding in words, for a person."""
        from lab.diagnosis.wording import render_finding

        return render_finding(self)

    @property
    def headline(self) -> str:
        """What it says first, as a clause."""
        from lab.diagnosis.wording import render_headline

        return render_headline(self)

    @property
    def is_brief(self) -> bool:
        """Whether it says no more than its headline."""
        from lab.diagnosis.wording import says_more

        return not says_more(self)

    def to_json(self) -> dict[str, Any]:
        """As plain data: kind and sentence, what every finding tells, and under `facts` what this kind tells."""
        told = to_plain(self.facts)
        common = {name: told.pop(name) for name in fields_of(Facts)}
        return {"kind": self.kind.value, "sentence": self.sentence, **common, "facts": told}


def fields_of(kind: Any) -> list[str]:
    """Names of the fields of a dataclass."""
    return [one.name for one in fields(kind)]


def to_plain(value: Any) -> Any:
    """A value of facts as JSON has it; floats that JSON lacks as text."""
    if is_dataclass(value):
        return {name: to_plain(getattr(value, name)) for name in fields_of(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): to_plain(one) for key, one in value.items()}
    return value


# -- what facts are made of


@dataclass(frozen=True, kw_only=True)
class CodePlace:
    """A line of the script where a rank was."""

    file: str
    """Relative to the script's folder; a whole path where the script's own code was not on the stack."""
    line: int
    call: str
    """The function of torch.distributed that the script was in; empty if it was in none."""
    source: str = ""
    """The text of the line; empty where it is not known."""
    child: CodePlace | None = None
    """Where a process of the rank's own stood."""
    loader: bool = False
    """Of such a process: whether it is a DataLoader's worker."""

    @property
    def own(self) -> bool:
        """Whether it is in the script's own code."""
        return not self.file.startswith(ELSEWHERE)

    @property
    def at(self) -> str:
        """`train.py:41`."""
        return f"{self.file}:{self.line}"


ELSEWHERE = ("/", "<", "torch/", "numpy/", "labnode/")
"""How paths begin that are not the script's own, those without the folder of packages too."""


@dataclass(frozen=True, kw_only=True)
class CallFacts:
    """A call of a rank."""

    rank: int
    name: str
    """`all_reduce #3`; of a message its operation, `recv`."""
    source: str = ""
    direction: Literal["", "to", "from"] = ""
    """Of a message, where its peer is."""
    peer: int | None = None
    """Of a message; None: any rank."""
    tag: int = 0
    group: str = ""
    """Where it matters: the group, `[0, 1]`."""
    error: str = ""
    """What it failed with."""
    lost: bool = False
    """Whether it failed because a peer was lost."""


@dataclass(frozen=True, kw_only=True)
class ThreadError:
    """What a thread of a rank raised."""

    error: str
    at: str = ""


@dataclass(frozen=True, kw_only=True)
class Stood:
    """Where a rank was that was alive."""

    state: Literal["running", "returned", "leaving"] = "running"
    """`returned`: done with the call that it was started for; `leaving`: its script was over."""
    place: CodePlace | None = None
    thread: CodePlace | None = None
    """Of one that was leaving: where a thread was that kept it."""
    raised: ThreadError | None = None
    """What a thread of it had raised before."""


@dataclass(frozen=True, kw_only=True)
class LastSeen:
    """The latest call or phase of a rank that left no stack."""

    name: str
    ended: bool
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class End:
    """How a rank failed."""

    how: Literal["memory", "signal", "raised", "exited", "unseen"]
    error: str = ""
    """What it raised, or said last."""
    signal: str = ""
    code: int | str | None = None
    expected_code: int = 0
    place: CodePlace | None = None
    held_bytes: int | None = None
    limit_bytes: int | None = None
    last_seen: LastSeen | None = None


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a rank had come in its calls."""

    calls: int
    name: str = ""
    """Of the last call."""
    source: str = ""
    unfinished: bool = False


@dataclass(frozen=True, kw_only=True)
class Activity:
    """What a rank did at the end."""

    rank: int
    what: Literal["waited", "unrecorded", "node_lost", "failed", "left", "stood", "called", "uncalled", "not_dumped"]
    call: CallFacts | None = None
    node: str = ""
    end: End | None = None
    code: int | None = None
    stood: Stood | None = None
    after: Progress | None = None
    """What it had called before that; None where that is not known."""


@dataclass(frozen=True, kw_only=True)
class Missed:
    """Whom a rank missed that failed for want of a peer, and what that one did."""

    rank: int
    node: str
    how: Literal["exited", "was_late", "left", "never_came", "came_late"]
    victim: int
    code: int | None = None
    seconds: float = 0.0
    """How long it lived, or how long after the other had given up it came."""
    step: str = ""
    source: str = ""
    stood: Stood | None = None


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A step in which a failure found other ranks."""

    name: str
    """`all_reduce #3`, or `send (message 0 -> 1)`."""
    calls: tuple[CallFacts, ...]


@dataclass(frozen=True, kw_only=True)
class Side:
    """Ranks of which the same is true."""

    ranks: tuple[int, ...]
    what: str
    """What they called, brought, made or have."""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WrongElement:
    """An output that is not what it should be."""

    rank: int
    tensor: int
    """Its number among the outputs, from 0."""
    tensors: int
    """How many outputs the call has."""
    element: int | None
    """The first wrong one; None where it is only known that the tensor as a whole is."""
    reduces: bool
    got: Any = None
    expected: Any = None


# -- the facts of each kind


@dataclass(frozen=True, kw_only=True)
class MissedStep(Facts):
    """A step that some ranks waited in and others never entered."""

    waits: tuple[CallFacts, ...]
    missing: tuple[int, ...]
    unknown: tuple[int, ...] = ()
    """Ranks that may have come to it: they left no dump."""
    message: bool = False
    receives: bool = False
    did: tuple[Activity, ...] = ()
    """What the missing ranks did."""
    refused: tuple[CallFacts, ...] = ()
    """Where it failed for all missing ranks: their calls."""
    several_groups: bool = False
    """Whether the missing ranks were in a collective of another group."""
    untold_messages: tuple[int, ...] = ()
    """Of dumps: missing ranks that may have waited for a message."""


@dataclass(frozen=True, kw_only=True)
class Ring(Facts):
    """Ranks that wait for each other in a ring."""

    cycle: tuple[int, ...]
    waits: tuple[CallFacts, ...]
    all_of: Literal["collectives", "receives", "sends", "mixed"] = "mixed"
    """What the calls in the ring are."""
    groups: tuple[Side, ...] = ()
    """The groups of the ring's collectives, and where they were made."""


@dataclass(frozen=True, kw_only=True)
class Strayed(Facts):
    """The rank of a ring that waits elsewhere than its own loop would have gone."""

    cycle: tuple[int, ...]
    wait: CallFacts
    usual: CallFacts
    """What it went on with in its rounds before."""


@dataclass(frozen=True, kw_only=True)
class StoodApart(Facts):
    """Who kept the others waiting, by the stacks of all."""

    how: Literal["absent", "alone", "gone", "odd"]
    waited: bool = False
    """Of one that was absent: whether the others waited in a collective."""
    stood: Stood | None = None
    common: Stood | None = None
    """Where most others were."""
    place: CodePlace | None = None


@dataclass(frozen=True, kw_only=True)
class InFlight(Facts):
    """A step that everybody entered and that did not end."""

    entered: tuple[int, ...] | None = None
    """Of dumps: who is known to have entered it; None: everybody."""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Activities(Facts):
    """What ranks did, where no step tells more."""

    did: tuple[Activity, ...]
    longest_s: float | None = None
    """How long the longest wait was, where the time was up while ranks were at work."""


@dataclass(frozen=True, kw_only=True)
class UnmatchedMessage(Facts):
    """A message that cannot come."""

    how: Literal["neighbour", "no_such_rank", "passing_by", "other_peers", "nobody_there"]
    waits: tuple[CallFacts, ...]
    last_rank: int = 0
    waited_s: float | None = None
    """How long the first had been waiting; of `passing_by` and `other_peers`, the first two."""
    usual_distance: int = 0
    """Whom all others mean: the rank so many places further on."""
    alike: tuple[int, ...] = ()
    """Those others."""
    group_size: int = 0
    did: tuple[Activity, ...] = ()
    before: int = 0
    """How many such messages had come before."""
    left_out: CallFacts | None = None
    """What the other end left out of its own loop."""
    left_next: bool = False
    """Whether its loop would have come to that next; else it had gone on after leaving it out once."""


@dataclass(frozen=True, kw_only=True)
class Outside(Facts):
    """What came over ranks from outside."""

    what: Literal["node", "rank"]
    node: str = ""
    how: str = ""
    """Of a node: what the engine says of it."""
    disconnected: bool = False
    signal: str = ""


@dataclass(frozen=True, kw_only=True)
class Cut(Facts):
    """A break in the network between nodes that was there when the run was over."""

    how: Literal["links", "halves", "nodes"]
    nodes: tuple[str, ...] = ()
    """Who was cut off; empty where nobody can be named."""
    parts: tuple[tuple[str, ...], ...] = ()
    """Nodes that still reached each other; those that are most come first."""
    links: tuple[tuple[str, str], ...] = ()
    one_way: tuple[tuple[str, str] | None, ...] = ()
    """Of each link: from whom to whom data still came, where that is known."""
    direction: Literal["", "sent", "received"] = ""
    """Of a single node: what still worked, what it sent or what was sent to it."""


@dataclass(frozen=True, kw_only=True)
class Flap(Facts):
    """Nothing got through between nodes for a while, and then it did."""

    links: tuple[tuple[str, str], ...]
    nodes: tuple[str, ...] = ()
    """Who is at an end of all of them."""
    bursts_s: tuple[float, ...] = ()
    step_s: float | None = None
    """How long the step took that was under way."""


@dataclass(frozen=True, kw_only=True)
class SlowLink(Facts):
    """Links that are far worse than others."""

    measure: Literal["round_trip_s", "lost_share", "bytes_per_s"]
    worst: float
    rest: float
    segments: int = 0
    """How many were sent again."""
    links: tuple[tuple[str, str], ...] = ()
    nodes: tuple[str, ...] = ()
    """Whose links they are; empty where that is no single side."""


@dataclass(frozen=True, kw_only=True)
class ConnectionReset(Facts):
    """Connections that broke by themselves."""

    links: tuple[tuple[str, str], ...]
    refused: bool = False
    node: str = ""
    """Which is at an end of all of them, where there are several."""


@dataclass(frozen=True, kw_only=True)
class FirstFailure(Facts):
    """Who failed first, or left, and where that found the others."""

    what: Literal["nodes_lost", "node_lost", "late", "left", "failed", "strayed"]
    node: str = ""
    nodes: tuple[str, ...] = ()
    """That were lost together."""
    how: str = ""
    """How they were lost, as the engine says it of one."""
    missed: Missed | None = None
    code: int | None = None
    end: End | None = None
    place: CodePlace | None = None
    progress: Progress | None = None
    hits: tuple[Hit, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WentAlone(Facts):
    """A rank that called something when those whom it needed there had ended."""

    node: str = ""
    call: CallFacts | None = None
    """Which call that was, where that is known; else where it was."""
    place: CodePlace | None = None
    message: bool = False
    progress: Progress | None = None
    """How far the others had come, if that is the same for all."""


@dataclass(frozen=True, kw_only=True)
class WorkerFailed(Facts):
    """A worker that failed after its script had started the ranks."""

    worker: int
    node: str
    end: End
    started: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LauncherEnded(Facts):
    """A launcher that failed, or started nobody, though no rank failed."""

    nodes: tuple[str, ...]
    failed: bool = False
    signal: str = ""
    code: int | None = None
    begun: bool = False
    """Whether ranks had started."""
    said: str = ""
    """Its last line."""


@dataclass(frozen=True, kw_only=True)
class OddCall(Facts):
    """A rank whose collective differs from that of most others, as PyTorch compared them."""

    call: str
    common: str


@dataclass(frozen=True, kw_only=True)
class Mismatch(Facts):
    """Ranks that called different operations where all had to call the same."""

    number: int | None
    """Of the call in its group."""
    group: str = ""
    """Empty for the default group."""
    odd_sides: tuple[Side, ...] = ()
    """What the odd ones called."""
    sides: tuple[Side, ...] = ()
    """What the others called, or everybody where nobody is odd."""
    by_rhythm: bool = False
    """Whether the odd one was found by its own loop, not by a majority."""
    again: int = 0
    """In how many other steps it was so."""
    stuck_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """Rows that one rank gives another that has room for another number of them."""

    giver: int
    taker: int
    rows: int
    room: int


@dataclass(frozen=True, kw_only=True)
class Unequal(Facts):
    """Ranks that called the same operation with arguments that do not fit together."""

    sides: tuple[Side, ...]
    """What each side brought; the majority's first, if there is one."""
    misfits: tuple[Misfit, ...] = ()
    at: tuple[str, ...] = ()
    wrong: WrongElement | None = None
    """The first value that came out wrong."""
    wrong_ranks: tuple[int, ...] = ()
    again: int = 0
    """In how many other steps it was so."""
    stuck_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Slipped(Facts):
    """Ranks that left out calls of the others, or made more."""

    calls: int
    """How many they left out; below 0: how many more they made."""
    call: CallFacts
    """The first of them."""
    turn: int = 0
    """The round of their loop; 0 where the line comes only once."""
    met_off: str = ""
    """The step from which on they met the others off by that."""


@dataclass(frozen=True, kw_only=True)
class GroupsDiffer(Facts):
    """A new_group that made another group on some ranks."""

    number: int
    sides: tuple[Side, ...]
    """What the odd ranks made, or everybody where nobody is odd; `what` is the list of members."""
    common: Side | None = None
    """What the others made."""
    slip: Literal["", "left_out", "added"] = ""


@dataclass(frozen=True, kw_only=True)
class GroupNotMade(Facts):
    """A new_group that ranks never came out of, because a member never came to it."""

    members: tuple[int, ...]
    did: tuple[Activity, ...]
    at: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GroupDestroyed(Facts):
    """A group that ranks destroyed while others still used it."""

    gone: tuple[int, ...]
    entered: tuple[int, ...]
    alone: bool
    """Whether those that used it are fewer, and so went on alone."""
    group: str = ""
    """Empty for the default group."""
    destroyed_at: tuple[str, ...] = ()
    used_at: tuple[str, ...] = ()
    failed: bool = False
    waited_s: float = 0.0
    did: tuple[Activity, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rendezvous(Facts):
    """Ranks that did not find each other in init_process_group."""

    how: Literal["addresses", "unanswered", "sizes", "same_rank", "beyond", "unconnected", "missing"]
    address: str = ""
    sides: tuple[Side, ...] = ()
    """What ranks looked at, or expected."""
    silent: tuple[int, ...] = ()
    """Whom no store answered."""
    met: tuple[int, ...] = ()
    """Who found one."""
    error: str = ""
    world_size: int = 0
    run_size: int = 0
    missing: int = 0
    """How many peers were missing."""
    absent: tuple[Activity, ...] = ()
    stuck: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PhaseCounts(Facts):
    """The first difference in how ranks went through their training steps."""

    phase: Literal["forward", "backward"]
    number: int
    did: bool
    """Whether the first side did it there, and the other did not."""
    first: tuple[int, ...]
    second: tuple[int, ...]
    forwards: Mapping[int, int] = field(default_factory=dict)
    """By rank."""
    backwards: Mapping[int, int] = field(default_factory=dict)
    exchanged: Mapping[int, int] = field(default_factory=dict)
    """In how many backwards a rank exchanged gradients."""


@dataclass(frozen=True, kw_only=True)
class WrongResult(Facts):
    """A step that gave ranks something else than it should have."""

    wrong_ranks: tuple[int, ...]
    first: WrongElement
    at: tuple[str, ...] = ()
    handles: bool = False
    waits_at: tuple[str, ...] = ()
    alike: int = 0
    """How many tensors hold the same as if they were one; 0 where they do not."""
    again: int = 0
    """In how many other steps it was so."""


@dataclass(frozen=True, kw_only=True)
class OddValues(Facts):
    """Values that some ranks brought to a reduction and that spoil it."""

    how: Literal["nan", "far", "other"]
    at: tuple[str, ...] = ()
    value: float = 0.0
    rest: float = 0.0
    usual: float = 0.0
    steps: int = 0
    """Before it, or of the same line."""


@dataclass(frozen=True, kw_only=True)
class SameValues(Facts):
    """Reductions to which all ranks brought the same."""

    steps: int
    op: str
    gradients: bool = False
    at: tuple[str, ...] = ()
    others_differ: bool = False


@dataclass(frozen=True, kw_only=True)
class Replicas(Facts):
    """Replicas of a DDP module that are not alike."""

    how: Literal["parameters", "parameter", "order", "norm", "steps"]
    at: tuple[str, ...] = ()
    """Where the module was made."""
    sides: tuple[Side, ...] = ()
    only_here: tuple[str, ...] = ()
    """Parameters that only the odd ranks have."""
    place: int = 0
    """Number of the parameter, from 1."""
    parameter: str = ""
    steps: int = 0
    unused_forward: bool = False
    no_exchange: bool = False
    stepped: tuple[int, ...] = ()
    stepped_at: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WeightsApart(Facts):
    """Weights that are trained by the same gradients, and differ."""

    reduced_at: tuple[str, ...]
    steps: int
    stepped_at: tuple[str, ...]
    place: int
    sides: tuple[Side, ...]


@dataclass(frozen=True, kw_only=True)
class Straggler(Facts):
    """A rank that the others waited for."""

    each_s: float
    share: float
    seldom: bool = False
    often: bool = False
    """Whether it came last to most steps; else it was late by far at some."""
    last: int = 0
    """To how many steps it came last, or was late to."""
    steps: int = 0
    least_s: float = 0.0
    most_s: float = 0.0
    usual_s: float = 0.0
    turns: int = 0
    """Training steps, where the time of each says something."""
    collected_s: float = 0.0
    """For how long its garbage collector ran meanwhile; 0 where that is not why."""
    collected_in: int = 0


@dataclass(frozen=True, kw_only=True)
class TimeShare:
    """Where the time of a rank went, seconds."""

    rank: int
    total: float
    own: float
    waiting: float
    communicating: float
    unknown: float


@dataclass(frozen=True, kw_only=True)
class TimeShares(Facts):
    """Where the time of the ranks went."""

    shares: tuple[TimeShare, ...]
    hidden_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class PathPart:
    """What a part of the critical path was."""

    share: float
    op: str
    source: str
    rank: int | None
    """Whose own work it was; None: communication."""


@dataclass(frozen=True, kw_only=True)
class CriticalPath(Facts):
    """What the length of a run came from."""

    total_s: float
    parts: tuple[PathPart, ...]
    from_new_group: bool = False


@dataclass(frozen=True, kw_only=True)
class Account(Facts):
    """What the ranks called altogether."""

    collectives: int = 0
    messages: int = 0
    brought_bytes: int = 0
    timed: bool = True
    untimed: Literal["", "stepped", "dumped"] = ""
    standing_out: str = ""
    """The step that took longest, or carried most."""
    at: tuple[str, ...] = ()
    longest_s: float = 0.0
    late_s: float = 0.0
    late_rank: int | None = None
    largest_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class DdpStory(Facts):
    """What a DDP module sent, and why."""

    module: int = 0
    """Its number, where there are several."""
    made_at: str = ""
    what: tuple[str, ...] = ()
    """The calls, or their contents, in short."""
    count: int = 0
    of: int = 0
    bytes: int = 0
    before: int = 0
    first: int = 0
    more: int = 0
    number: int = 0
    share: float = 0.0
    step_s: float = 0.0
    single_bucket: bool = False
    with_buffers: bool = False
    dtype: str = ""
    parameters: int | None = None


@dataclass(frozen=True, kw_only=True)
class ThreadEnded(Facts):
    """Threads that ended by an error."""

    raised: ThreadError
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class BackendNamed(Facts):
    """Another backend than the run has, and what became of it."""

    named: str
    backend: str
    instead: bool = False
    at: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AttemptEnded(Facts):
    """What ended an attempt before the one that a record shows."""

    number: int
    world_size: int = 0
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class StartedByScript(Facts):
    """Processes that scripts started and that joined a process group."""

    by_worker: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Ranks that they are."""
    aside: int = 0
    """How many more met in other groups."""
    aside_workers: tuple[int, ...] = ()
    any_ranks: bool = True
