"""What a run does now, as data: every rank with its call, whom it waits for, and what came of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lab.diagnosis.ends import call_facts
from lab.diagnosis.wording import describe_call
from lab.features.html.timelines import end_text
from lab.node.messages.agent import Exited
from lab.trace.model import Call, RankTrace
from lab.trace.steps import Step
from lab.words import clip

_RECENT = 8
_LONGEST = 300
"""What a script can name may be as long as it likes."""


@dataclass
class Life:
    """What is known of a rank besides its calls."""

    started: float | None = None
    """Unix time."""
    halted: str = ""
    """The signal that stopped it."""
    ended: Exited | None = None
    told_wait: int = 0
    """Index of the call of which it was told that the rank waits in it."""
    beginning: dict[int, bytes] = field(default_factory=dict)
    """By stream: the beginning of a line that it prints."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What is the same for all ranks."""

    clock: float
    """Unix time."""
    origin: float
    """Unix time at which the trace's clock is 0."""
    began: float
    """Unix time at which the run began."""
    step_of: Mapping[int, Step]
    """By identity of a call."""
    over: bool

    def ago(self, time: float) -> float:
        """How long ago a time of the trace is."""
        return max(0.0, self.clock - self.origin - time)

    def words(self, call: Call) -> str:
        """A call in words."""
        return call_words(call, self.step_of)


def call_words(call: Call, step_of: Mapping[int, Step]) -> str:
    """A call in words, also where its step is not known."""
    step = step_of.get(id(call))
    if step is not None:
        return clip(describe_call(call_facts(call, step)), _LONGEST)
    return clip(call.op if call.seq is None else f"{call.op} #{call.seq}", _LONGEST)


def rank_now(
    rank: int, node: str, life: Life, trace: RankTrace | None, held: Call | None, calls: int, moment: Moment
) -> RankNow:
    """What a rank does: ended, halted, held at a call, inside one that holds it up, or outside of calls."""
    shown = [*(trace.calls[-_RECENT:] if trace is not None else ()), *([held] if held is not None else ())]
    recent = tuple(_call_now(call, held, moment) for call in shown[-_RECENT:])
    state, told, place, bad = "outside", "running", "", False
    since_s: float | None = None
    waits_for: tuple[int, ...] = ()
    inside = blocking(trace, moment.step_of)
    if life.ended is not None:
        state, told = "ended", clip(end_text(life.ended), _LONGEST)
        bad = bool(life.ended.code or life.ended.signal) and not life.ended.stopped
    elif moment.over or life.started is None:
        state, told = "starting", "its end is not known" if moment.over else "starting"
    elif life.halted:
        state, told = "halted", f"stopped by {life.halted}"
    elif held is not None:
        state, told, place, since_s = "held", f"held before {moment.words(held)}", held.source, moment.ago(held.begin)
    elif inside is not None:
        state, told, place, since_s = "inside", f"in {moment.words(inside)}", inside.source, moment.ago(inside.begin)
        step = moment.step_of.get(id(inside))
        waits_for = step.lacks(inside) if step is not None else ()
    elif trace is not None and trace.recorder and not trace.cut:  # else nobody knows more than that it runs
        mark = next((mark for mark in reversed(trace.marks) if mark.end is None), None)
        if mark is not None:
            told, place, since_s = f"in {mark.name}", mark.source, moment.ago(mark.begin)
        else:
            ends = [call.end for call in shown if call.end is not None]
            told, since_s = "in no call", moment.ago(max(ends, default=trace.first))
    return RankNow(
        rank=rank, node=node, state=state, told=clip(told, _LONGEST), place=clip(place, _LONGEST), since_s=since_s,
        waits_for=waits_for, bad=bad, calls=calls, recent=recent,
    )  # fmt: skip


def alike_ranks(ranks: Sequence[RankNow]) -> list[list[RankNow]]:
    """Ranks that do the same at the same place together; those of which there are the fewest first."""
    groups: dict[object, list[RankNow]] = {}
    for rank in ranks:
        others = tuple(other for other in rank.waits_for if other != rank.rank)
        groups.setdefault((rank.told, rank.state, rank.place, rank.bad, others), []).append(rank)
    return sorted(groups.values(), key=len)


def _call_now(call: Call, held: Call | None, moment: Moment) -> CallNow:
    return CallNow(
        text=moment.words(call),
        op=clip(call.op, _LONGEST),
        place=clip(call.source, _LONGEST),
        state="held" if call is held else "inside" if call.state == "unfinished" else call.state,
        began_s=max(0.0, call.begin + moment.origin - moment.began),
        took_s=None if call.end is None else max(0.0, call.end - call.begin),
    )


def blocking(trace: RankTrace | None, step_of: Mapping[int, Step]) -> Call | None:
    """The call that holds a rank up: one without a handle, or, while the script waits for a handle, one that has it."""
    unfinished = [call for call in trace.calls if call.state == "unfinished"] if trace is not None else []
    own = [call for call in unfinished if not call.hands_out]
    if own or trace is None or not unfinished:
        return own[-1] if own else None
    if not any(wait.end is None for wait in trace.waits):
        return None
    lacking = (call for call in unfinished if (step := step_of.get(id(call))) and step.missing)
    return next(lacking, unfinished[0])


@dataclass(frozen=True, kw_only=True)
class CallNow:
    """A call of a rank."""

    text: str
    """`all_reduce #3`, `recv from rank 1`."""
    op: str
    place: str
    """The line of the script, `file:line`; empty where it is not known."""
    state: str
    """`held`, `inside`, `completed`, `failed`."""
    began_s: float
    """Seconds since the run began."""
    took_s: float | None = None
    """None where it is not over."""


@dataclass(frozen=True, kw_only=True)
class RankNow:
    """A rank."""

    rank: int
    node: str
    state: str
    """`starting`, `outside` any call, `inside` a call, `held` at one, `halted` by a signal, `ended`."""
    told: str
    """In words: `in all_reduce #3`, `in backward`, `in no call`, `exit 0`; `running` where calls are not on record."""
    place: str = ""
    """The line of the script that it is at, as far as calls tell it."""
    since_s: float | None = None
    """For how long; None where nobody knows."""
    waits_for: tuple[int, ...] = ()
    """Ranks without which its call cannot end."""
    bad: bool = False
    """Whether it ended, and not as it should."""
    calls: int = 0
    """How many it has made."""
    recent: tuple[CallNow, ...] = ()
    """The last of them, oldest first."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line that a rank printed, or that the watcher has to say."""

    number: int
    """From 1, in the order of arrival."""
    rank: int
    """-1: the scenario's own check."""
    stream: int
    """1: standard output, 2: standard error."""
    time_s: float
    """Seconds since the run began."""
    text: str


@dataclass(frozen=True, kw_only=True)
class Now:
    """A run at one moment."""

    run: str
    scenario: str
    engine: str
    ranks: tuple[RankNow, ...]
    elapsed_s: float | None
    """Seconds since the first worker was let go; None before."""
    over: bool = False
    verdict: str = ""
    """Empty while the run goes on."""
    reason: str = ""
    remarks: tuple[str, ...] = ()
    """What keeps the view from being whole, a sentence each."""
    next: str = ""
    """What a key press lets go: `all_reduce #3`; empty where nobody is held."""
    next_steps: tuple[str, ...] = ()
    """The titles of the steps that it lets go, where they are whole."""
    stepping: bool = False
    """Whether ranks are held before each call."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)
