"""What a diagnosis finds, as data: a kind and its facts. `lab.diagnosis.wording` has the kernel's, with their words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Literal, TypeVar

from lab.frozen import Frozen
from lab.words import capitalize_first

T = TypeVar("T")
Words = str | tuple[str, ...]
"""A headline, as a clause, and whole sentences that follow it."""


def majority(by_rank: Mapping[int, T]) -> tuple[T | None, tuple[int, ...]]:
    """What more than half of the ranks have, and who has something else; None and nobody where there is no majority."""
    common, count = Counter(by_rank.values()).most_common(1)[0] if by_rank else (None, 0)
    if 2 * count <= len(by_rank):
        return None, ()
    return common, tuple(sorted(rank for rank, what in by_rank.items() if what != common))


def group_ranks(by_rank: Mapping[int, T]) -> dict[T, list[int]]:
    """What ranks have, and who has it."""
    groups: dict[T, list[int]] = {}
    for rank, what in by_rank.items():
        groups.setdefault(what, []).append(rank)
    return groups


def sides_of(by_rank: Mapping[int, str]) -> tuple[Side, ...]:
    """What ranks have, and who has it, as a finding tells it."""
    return tuple(Side(ranks=tuple(ranks), what=what) for what, ranks in group_ranks(by_rank).items())


class Kind(str, Enum):
    """A kind of findings, with its properties. Those of the kernel are `FindingKind`; features have their own."""

    order: int
    """Where an explanation has it: causes come first, what is true of every run comes last."""
    properties: frozenset[str]
    """Which of these it has:

    - `ends`: it can be why a run hung or failed.
    - `blameless`: where it names nobody, nobody can be named.
    - `by_calls`: it says more of whom it names than where that rank stood: it names a culprit by its calls.
    - `absence`: it is about a rank that was not where others needed it.
    - `misfit`: ranks brought to one operation what does not fit together.
    - `usual`: it says of most runs the same.
    """

    def __new__(cls, value: str, order: int = 0, properties: str = "") -> Kind:
        """A member with its properties."""
        kind = str.__new__(cls, value)
        kind._value_, kind.order, kind.properties = value, order, frozenset(properties.split())
        return kind

    def __str__(self) -> str:
        """Its name, as in records."""
        return str(self.value)


class FindingKind(Kind):
    """The kinds of findings that the kernel makes; `docs/explain.md` describes each."""

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
    FAILED = "failed", 0, "ends"
    IN_FLIGHT = "in_flight", 0, "ends"
    NOT_KNOWN = "not_known", 0, "ends"
    OWN_CODE = "own_code", 0, "ends"
    WAITING = "waiting", 0, "ends"
    OUT_OF_TIME = "out_of_time", 0, "ends"


class Finding(Frozen):
    """One thing that a run shows: a kind, and its facts. Those of most kinds have more facts, and all have words."""

    kind: Kind
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
        vars(self)["lines"] = unique_lines(self.lines)

    def render(self) -> Words:
        """Its words, which each type of findings has of its own."""
        raise NotImplementedError

    def what_it_did(self) -> str:
        """What the one rank did that it names, in words that follow its name; empty where there are none."""
        return ""

    @property
    def cause(self) -> str:
        """What sort of thing it is, in the word that a culprit has for it."""
        return str(self.kind)

    @property
    def words(self) -> tuple[str, ...]:
        """A headline, as a clause, and whole sentences that follow it."""
        words = self.render()
        return (words,) if isinstance(words, str) else words

    @property
    def sentence(self) -> str:
        """The finding in words, for a person."""
        head, *rest = self.words
        return " ".join([f"{capitalize_first(head)}.", *filter(None, rest)])

    @property
    def headline(self) -> str:
        """What it says first, as a clause: without a capital letter and a full stop."""
        head = self.words[0]
        return head[:1].lower() + head[1:]

    def to_json(self) -> dict[str, Any]:
        """As plain data: kind and sentence, what every finding tells, and under `facts` what this kind tells."""
        facts = to_plain(self)
        common = {name: facts.pop(name) for name in fields_of(Finding)}
        return {"kind": common["kind"], "sentence": self.sentence, **common, "facts": facts}


def unique_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Each line once, without those that are not known."""
    return tuple(dict.fromkeys(filter(None, lines)))


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


class CodePlace(Frozen):
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


class CallFacts(Frozen):
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


class ThreadError(Frozen):
    """What a thread of a rank raised."""

    error: str
    at: str = ""


class Stood(Frozen):
    """Where a rank was that was alive."""

    state: Literal["running", "returned", "leaving"] = "running"
    """`returned`: done with the call that it was started for; `leaving`: its script was over."""
    place: CodePlace | None = None
    thread: CodePlace | None = None
    """Of one that was leaving: where a thread was that kept it."""
    raised: ThreadError | None = None
    """What a thread of it had raised before."""


class LastSeen(Frozen):
    """The latest call or phase of a rank that left no stack."""

    name: str
    ended: bool
    source: str = ""


class End(Frozen):
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


class Progress(Frozen):
    """How far a rank had come in its calls."""

    calls: int
    name: str = ""
    """Of the last call."""
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
    """What it had called before that; None where that is not known."""


class Missed(Frozen):
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


class Hit(Frozen):
    """A step in which a failure found other ranks."""

    name: str
    """`all_reduce #3`, or `send (message 0 -> 1)`."""
    calls: tuple[CallFacts, ...]


class Side(Frozen):
    """Ranks of which the same is true."""

    ranks: tuple[int, ...]
    what: str
    """What they called, brought, made or have."""
    lines: tuple[str, ...] = ()


class WrongElement(Frozen):
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
