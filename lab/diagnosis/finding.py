"""Findings as data: a kind and its facts. The kernel's findings and their sentences are in `lab.diagnosis.wording`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field, fields, is_dataclass
from enum import Enum
from typing import Any, Literal, TypeVar

from lab.frozen import Frozen
from lab.node.statement import LARGEST
from lab.words import capitalize_first, group_pairs

T = TypeVar("T")
Words = str | tuple[str, ...]
"""A headline, as a clause, and full sentences that follow it."""


def find_majority(by_rank: Mapping[int, T]) -> tuple[T | None, tuple[int, ...]]:
    """Return what more than half of the ranks have, and the ranks that have something else.

    Without a majority, return None and no ranks.
    """
    common, count = Counter(by_rank.values()).most_common(1)[0] if by_rank else (None, 0)
    if 2 * count <= len(by_rank):
        return None, ()
    return common, tuple(sorted(rank for rank, what in by_rank.items() if what != common))


def group_ranks(by_rank: Mapping[int, T]) -> dict[T, list[int]]:
    """Group ranks by what they have."""
    return group_pairs((what, rank) for rank, what in by_rank.items())


def sides_of(by_rank: Mapping[int, str]) -> tuple[Side, ...]:
    """Group ranks by what they have, as facts of a finding."""
    return tuple(Side(ranks=tuple(ranks), what=what) for what, ranks in group_ranks(by_rank).items())


class Kind(str, Enum):
    """Kind of a finding, with its properties. The kernel's kinds are in `FindingKind`; features have their own."""

    order: int
    """Position in an explanation: causes come first, facts about every run come last."""
    properties: frozenset[str]
    """Subset of these:

    - `ends`: it can be the reason that a run hung or failed.
    - `blameless`: if it names no rank, then no rank can be blamed.
    - `by_calls`: it names a culprit by its calls, not only by where the rank was.
    - `absence`: it is about a rank that was not where others needed it.
    - `misfit`: the arguments of ranks in one operation do not fit together.
    - `usual`: it holds for most runs."""

    def __new__(cls, value: str, order: int = 0, properties: str = "") -> Kind:
        """Create a member with its properties."""
        kind = str.__new__(cls, value)
        kind._value_, kind.order, kind.properties = value, order, frozenset(properties.split())
        return kind

    def __str__(self) -> str:
        """Return the name, as in records."""
        return str(self.value)


class FindingKind(Kind):
    """Kinds of the kernel's findings; `docs/explain.md` describes each."""

    # value, order, properties
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
    FAILED = "failed", 0, "ends by_calls"
    IN_FLIGHT = "in_flight", 0, "ends"
    NOT_KNOWN = "not_known", 0, "ends"
    OWN_CODE = "own_code", 0, "ends"
    WAITING = "waiting", 0, "ends"
    OUT_OF_TIME = "out_of_time", 0, "ends"


class Finding(Frozen):
    """One item of a diagnosis: a kind and its facts. Subclasses add facts and words."""

    kind: Kind
    ranks: tuple[int, ...] = ()
    """Ranks that are responsible; empty if none can be named."""
    others: tuple[int, ...] = ()
    """Other ranks that took part or were affected."""
    link: str = ""
    """The link between two nodes that it is about, if neither node is responsible: `node0 - node2`."""
    step: str = ""
    """The collective or message that it is about, such as `all_reduce #3`."""
    lines: tuple[str, ...] = ()
    """Lines of the script, `file:line`; those of `ranks` first."""
    seconds: float | None = None
    """How long the others waited, or another duration that the finding is about."""

    def __post_init__(self) -> None:
        """Name each line once."""
        vars(self)["lines"] = unique_lines(self.lines)

    def render(self) -> Words:
        """Return the finding in words: by default, what the named rank did."""
        return f"rank {self.ranks[0]} {self.what_it_did()}"

    def what_it_did(self) -> str:
        """Return what the named rank did, as words that follow its name; empty if there are none."""
        return ""

    @property
    def cause(self) -> str:
        """The cause, in one word, for the culprit of a verdict."""
        return str(self.kind)

    @property
    def words(self) -> tuple[str, ...]:
        """A headline, as a clause, and full sentences that follow it."""
        words = self.render()
        return (words,) if isinstance(words, str) else words

    @property
    def sentence(self) -> str:
        """The finding as sentences, for people."""
        head, *rest = self.words
        return " ".join([f"{capitalize_first(head)}.", *filter(None, rest)])

    @property
    def headline(self) -> str:
        """The first words as a clause: no capital letter, no full stop."""
        head = self.words[0]
        return head[:1].lower() + head[1:]

    def to_json(self) -> dict[str, Any]:
        """Return plain data: kind, sentence, common fields, and under `facts` the fields of this kind."""
        facts = to_plain(self)
        common = {name: facts.pop(name) for name in fields_of(Finding)}
        return {"kind": common["kind"], "sentence": self.sentence, **common, "facts": facts}


def unique_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Return each known line once."""
    return tuple(dict.fromkeys(filter(None, lines)))


def fields_of(kind: Any) -> list[str]:
    """Return the names of a dataclass's fields."""
    return [one.name for one in fields(kind)]


def keys_of(kind: Any) -> dict[str, str]:
    """Map the fields of a dataclass to their keys in records; `metadata["key"]` keeps the key of a renamed field."""
    return {one.name: one.metadata.get("key", one.name) for one in fields(kind)}


def to_plain(value: Any) -> Any:
    """Convert a value to JSON types; numbers that JSON lacks, or that no record may hold, become text."""
    if is_dataclass(value):
        return {key: to_plain(getattr(value, name)) for name, key in keys_of(value).items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (int, float)) and not abs(value) < LARGEST:
        return f"a number beyond {LARGEST:g}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(one) for one in value]
    return {str(key): to_plain(one) for key, one in value.items()} if isinstance(value, Mapping) else value


# -- parts of facts


class CodeLocation(Frozen):
    """A line of the script that a rank was in."""

    file: str
    """Relative to the script's folder; an absolute path if the script's own code was not on the stack."""
    line: int
    call: str
    """The function of torch.distributed that the script was in; empty if none."""
    source: str = ""
    """Text of the line; empty if unknown."""
    child: CodeLocation | None = None
    """Location in a process that the rank itself started."""
    loader: bool = False
    """For such a process: whether it is a DataLoader worker."""

    @property
    def own(self) -> bool:
        """Whether it is in the script's own code."""
        return not self.file.startswith(ELSEWHERE)

    @property
    def at(self) -> str:
        """`train.py:41`."""
        return f"{self.file}:{self.line}"


ELSEWHERE = ("/", "<", "torch/", "numpy/", "labnode/")
"""Prefixes of paths outside the script's folder, including those without the folder of packages."""


class CallFacts(Frozen):
    """A call of a rank."""

    rank: int
    name: str
    """`all_reduce #3`; for a message its operation, `recv`."""
    source: str = ""
    direction: Literal["", "to", "from"] = ""
    """For a message: whether the peer is its destination or its source."""
    peer: int | None = None
    """For a message; None: any rank."""
    tag: int = 0
    group: str = ""
    """The group, `[0, 1]`, if it matters."""
    error: str = ""
    """The error that it failed with."""
    lost: bool = False
    """Whether it failed because a peer was lost."""


class ThreadError(Frozen):
    """The error of a thread of a rank."""

    error: str
    at: str = ""


class Stood(Frozen):
    """Where a rank was that was still alive."""

    state: Literal["running", "returned", "leaving"] = "running"
    """`returned`: done with the call that it was started for; `leaving`: its script was over."""
    location: CodeLocation | None = field(default=None, metadata={"key": "place"})
    thread: CodeLocation | None = None
    """For a rank that was leaving: location of the thread that kept it."""
    raised: ThreadError | None = None
    """The error that a thread of it had raised before."""


class LastActivity(Frozen):
    """The latest call or phase of a rank that left no stack."""

    name: str
    ended: bool
    source: str = ""


class End(Frozen):
    """How a rank failed."""

    how: Literal["memory", "signal", "raised", "exited", "unseen"]
    error: str = ""
    """The error that it raised, or its last message."""
    signal: str = ""
    code: int | str | None = None
    expected_code: int = 0
    location: CodeLocation | None = field(default=None, metadata={"key": "place"})
    held_bytes: int | None = None
    limit_bytes: int | None = None
    last_activity: LastActivity | None = field(default=None, metadata={"key": "last_seen"})


class Progress(Frozen):
    """How far a rank had come in its calls."""

    calls: int
    name: str = ""
    """Name of the last call."""
    source: str = ""
    unfinished: bool = False


class Activity(Frozen):
    """What a rank did at the end."""

    rank: int
    what: Literal["waited", "unrecorded", "node_lost", "failed", "left", "stood", "called", "uncalled", "not_dumped"]
    call: CallFacts | None = None
    node: str = ""
    end: End | None = None
    code: int | None = None
    stood: Stood | None = None
    after: Progress | None = None
    """Its calls before that; None if unknown."""


class Missed(Frozen):
    """The rank that another one needed when it failed, and what the needed rank did."""

    rank: int
    node: str
    how: Literal["exited", "was_late", "left", "never_came", "came_late"]
    victim: int
    code: int | None = None
    seconds: float = 0.0
    """How long it lived, or how long after the other rank had given up it arrived."""
    step: str = ""
    source: str = ""
    stood: Stood | None = None
    after: Progress | None = None
    """For a rank that exited: its calls before that."""


class Hit(Frozen):
    """A step in which a failure affected other ranks."""

    name: str
    """`all_reduce #3`, or `send (message 0 -> 1)`."""
    calls: tuple[CallFacts, ...]


class Side(Frozen):
    """Ranks for which the same is true."""

    ranks: tuple[int, ...]
    what: str
    """What they called, passed, created, or have."""
    lines: tuple[str, ...] = ()
    callers: tuple[str, ...] = ()
    """Lines that called the functions with these lines, if they differ between the sides."""


class UnexpectedElement(Frozen):
    """An output that differs from its expected value."""

    rank: int
    tensor: int
    """Index among the outputs, from 0."""
    tensors: int
    """Number of outputs of the call."""
    element: int | None
    """The first unexpected element; None if it is only known that the whole tensor differs."""
    reduces: bool
    got: Any = None
    expected: Any = None
