"""Detection of faults: when each was noticed and by whom. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lab.frozen import Frozen
from lab.node.messages.agent import STARTER, Connections, Exited, Halted, Limited, Started
from lab.record import events
from lab.record.read import Record
from lab.record.result import Expectation
from lab.words import capitalize_first, format_bit_rate, format_count, format_duration, join_words

_CLOCK_S = 0.005
"""A fact may be this much earlier than its fault, because a process writes either one only after it happened."""


class Fact(Frozen):
    """A sign of a failure in a run."""

    time: float
    """Unix time by the clock of the lab's machine."""
    by: str
    """Who noticed it: a rank, the agent of a node, the engine, or the time limit."""
    what: str
    """The end of a sentence that begins with who noticed it."""


class Detection(Frozen):
    """One fault, and the signs of it."""

    fault: str
    """In words: `kill node2`."""
    time: float
    """Unix time since when it was in force."""
    number: int | None = None
    """The index of the fault in the plan; None: no plan has it."""
    notices: tuple[Fact, ...] = ()
    """The first sign for each who noticed it, in order; empty: no one did."""
    why: str = ""
    """Its trigger; empty: it was injected before the run began."""
    healed: float | None = None
    """Unix time at which it was undone; None: it was not, or this is not recorded."""

    @property
    def first(self) -> Fact | None:
        """The first sign; None: no one noticed it."""
        return self.notices[0] if self.notices else None

    @property
    def after_s(self) -> float | None:
        """Seconds until it was noticed, 0 if that was during the injection; None: it was not."""
        return None if self.first is None else max(0.0, self.first.time - self.time)

    def to_result(self) -> dict[str, Any]:
        """Return its fields of the result."""
        after_s = None if self.after_s is None else round(self.after_s, 6)
        return {"detected_s": after_s, "by": self.first.by if self.first is not None else ""}

    def sentence(self) -> str:
        """Return `kill node2: after 0.12 s the engine saw node2 go away`, or that no one noticed it."""
        if self.first is None:
            return f"{self.fault}: not detected"
        return f"{self.fault}: after {format_duration(self.after_s)} {self.first.by} {self.first.what}"


def facts_of(record: Record) -> list[events.Event]:
    """Return the facts of all attempts of a run, in order."""
    return [fact for one in (*record.earlier_attempts().values(), record) for fact in one.events()]


def find_detections(facts: Iterable[events.Event]) -> list[Detection]:
    """Return for each fault that was in force, in order, the signs after it."""
    known, signs, timed_out = list(facts), list[Fact](), False
    ahead = {one.node: one.offset_s for one in known if isinstance(one, events.Clock)}
    for one in known:
        signs += _signs(events.by_lab_clock(one, ahead), timed_out=timed_out)
        timed_out |= isinstance(one, events.TimedOut)
    signs.sort(key=lambda sign: sign.time)
    return [_detection(one, signs, known) for one in known if isinstance(one, events.Fault)]


def _detection(fault: events.Fault, signs: Sequence[Fact], known: Sequence[events.Event]) -> Detection:
    since, first = (fault.begun or fault.time) - _CLOCK_S, dict[str, Fact]()
    for sign in signs:
        if sign.time >= since:
            first.setdefault(sign.by, sign)
    healed = (one for one in known if isinstance(one, events.FaultHealed) and one.fault == fault.fault)
    ends = (one.time for one in healed if one.number in (None, fault.number) and one.time >= fault.time)
    return Detection(
        fault=fault.fault,
        time=fault.time,
        number=fault.number,
        notices=tuple(first.values()),
        why=fault.why,
        healed=next(ends, None),
    )


def _signs(fact: events.Event, *, timed_out: bool) -> list[Fact]:
    """Return who noticed what, and when; empty if a fact shows no failure."""
    by, what, time, node = "the engine", "", fact.time, getattr(fact, "node", "")
    agent = f"the agent of {node}" if node else "an agent"
    if isinstance(fact, Exited) and not (fact.stopped or timed_out) and (fact.code or fact.signal):
        whose = f"rank {fact.rank}" if fact.rank > STARTER else "the launcher"
        if fact.raised is not None:
            error = fact.error.partition(":")[0].strip()[:60] or "an exception"
            by, what, time = whose, f"raised {error}", fact.raised
        else:
            by, what = agent, f"saw {whose} end"
    elif isinstance(fact, (events.NodeLost, events.EngineLost)):
        what = f"saw that {fact.node} {getattr(fact, 'how', '') or 'does not answer'}"
    elif isinstance(fact, events.NodeTroubled) and fact.how:
        what = f"saw that {fact.node} {fact.how}"
    elif isinstance(fact, Halted) and fact.signal:
        by, what = agent, f"saw rank {fact.rank} stopped by {fact.signal}"
    elif isinstance(fact, Connections) and fact.stuck:
        by, what = agent, f"saw that {fact.peer} acknowledged nothing"
    elif isinstance(fact, Limited) and fact.what in ("memory", "disk", "processes"):
        by, what = agent, f"saw the limit of {fact.what} reached"
    elif isinstance(fact, events.TimedOut):
        by, what = "the time limit", "passed"
    elif isinstance(fact, events.Restarted):
        by, what = "the launcher", "restarted the workers"
    return [Fact(time=time, by=by, what=what)] if what else []


def check_detected(within_s: float, detections: Sequence[Detection]) -> Expectation:
    """Check whether every fault was noticed in time; not met without faults."""
    late = [one for one in detections if one.after_s is None or one.after_s > within_s]
    got = "; ".join(one.sentence() for one in late or detections) or "(no fault was injected)"
    met = bool(detections) and not late
    return Expectation(what="detected_within", expected=format_duration(within_s), got=got, met=met)


# -- in words


def render_measured(facts: Any) -> str:
    """Return `requested 100 Mbit/s, measured 99.8 Mbit/s (node0 -> node1)`; empty without measurements."""
    if not isinstance(facts, Mapping):
        return ""
    numbers = {name: float(value) for name, value in facts.items() if type(value) in (int, float)}
    measured = []
    if rate := numbers.get("asked_rate_bits_per_s"):
        got = numbers.get("bits_per_s")
        reached = "which is too fast to measure here" if got is None else f"measured {format_bit_rate(got)}"
        measured.append(f"requested {format_bit_rate(rate)}, {reached}")
    if delay_s := numbers.get("asked_delay_s"):
        got = numbers.get("round_trip_s")
        reached = "got no answer" if got is None else f"measured round trip {format_duration(got)}"
        measured.append(f"requested {format_duration(delay_s)} one way, {reached}")
    way = f" ({facts['measured']})" if measured and isinstance(facts.get("measured"), str) else ""
    counts = []
    for name, number in numbers.items():
        word, _, what = name.partition("_")
        if what in ("packets", "connections"):
            counts.append(f"{format_count(int(number), what[:-1])} {word}")
    return "; ".join(filter(None, (f"{', '.join(measured)}{way}", join_words(counts))))


def describe_fault(fault: Mapping[str, Any]) -> str:
    """Describe a fault of a result, or the network of the whole run: `network wan-40ms; asked 20 ms`."""
    name, at, why, noticed, by = (fault.get(name) for name in ("fault", "at_s", "why", "detected_s", "by"))
    measured = render_measured(fault.get("found"))
    if str(name).startswith("network ") and not why and not fault.get("failed"):
        return "; ".join(filter(None, (name, measured)))
    when = f"after {format_duration(at)}" if isinstance(at, float) else "before the run"
    text = f"fault: {name or 'unknown'} {when}{f', when {why}' if why else ''}"
    if fault.get("failed"):
        return f"{text}; the lab could not inject it: {fault['failed']}"
    noticed_text = f"noticed after {format_duration(noticed)} by {by}" if isinstance(noticed, float) and by else ""
    return "; ".join(filter(None, (text, measured, noticed_text)))


_MOST_NOTICES = 6


def broken_in(record: Record) -> list[dict[str, Any]]:
    """Return each fault of a run with its times and a sentence or two."""
    return report_faults(facts_of(record))


def report_faults(facts: Sequence[events.Event]) -> list[dict[str, Any]]:
    """Return each fault with its times and a sentence or two, from the facts of a run."""
    began = min((fact.time for fact in facts if isinstance(fact, Started)), default=0.0)
    return [
        {
            "fault": one.fault,
            "why": one.why,
            "at_s": _since(began, one.time),
            "healed_s": None if one.healed is None else _since(began, one.healed),
            **one.to_result(),
            "seen": [
                {"after_s": _since(one.time, fact.time), "by": fact.by, "what": fact.what} for fact in one.notices
            ],
            "sentence": _sentence(one, began),
        }
        for one in find_detections(facts)
    ]


def _since(begin: float, time: float) -> float:
    return round(max(0.0, time - begin), 6)


def _sentence(one: Detection, began: float) -> str:
    when = f"after {format_duration(_since(began, one.time))}, when {one.why}" if one.why else "before the run began"
    healed = f"; healed {format_duration(_since(one.time, one.healed))} later" if one.healed is not None else ""
    sentences = [f"{it.by} {it.what} (after {format_duration(_since(one.time, it.time))})" for it in one.notices]
    hidden = f"; {len(sentences) - _MOST_NOTICES} more" if len(sentences) > _MOST_NOTICES else ""
    noticed = capitalize_first("; then ".join(sentences[:_MOST_NOTICES])) or "Nobody noticed"
    return f"Fault: {one.fault}, {when}{healed}. {noticed}{hidden}."
