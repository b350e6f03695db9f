"""Recorded calls in the notation of `expect: calls:`, and where they first differ from what a scenario states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from lab.spec.calls import ANYTHING, CallPattern
from lab.trace.model import Buffer, Call, Group

_LONGEST_PERIOD = 24
"""Most calls of which a repetition is noticed."""


def render_call(call: Call, groups: Mapping[str, Group], *, phase: bool = False) -> str:
    """The call as a scenario would state it: `broadcast float32[165] from 0`; with its phase if that is asked for."""
    words = [call.op]
    if call.reduce_op:
        words.append(call.reduce_op)
    if call.own:
        words.append(_render_tensors(call.own))
    for word, rank in (("from", source_of(call)), ("to", destination_of(call))):
        if rank is not None:
            words.append(f"{word} {rank}")
    if call.tag:
        words.append(f"tag {call.tag}")
    label = _label(call, groups)
    if label != "default":
        words.append(f'in "{label}"' if " " in label and not (label[0] == "[" and label[-1] == "]") else f"in {label}")
    if phase and call.phase:
        words.append(f"during {call.phase}")
    return " ".join(words)


def render_calls(calls: Iterable[Call], groups: Mapping[str, Group], *, phase: bool = False) -> list[str]:
    """Calls in order as the items of a list, with what repeats written once: `all_reduce x3`, `(send, recv) x4`."""
    return _fold([render_call(call, groups, phase=phase) for call in calls])


def _fold(items: Sequence[str]) -> list[str]:
    folded = []
    at = 0
    while at < len(items):
        period, times = _repetition(items, at)
        inner = items[at : at + period]
        once = inner[0] if period == 1 else f"({', '.join(_fold(inner))})"
        folded.append(once if times == 1 else f"{once} x{times}")
        at += period * times
    return folded


def _repetition(items: Sequence[str], at: int) -> tuple[int, int]:
    """How many items from a place on repeat, and how often: what covers most, then the shortest; (1, 1) for none."""
    best = (1, 1)
    for period in range(1, min(_LONGEST_PERIOD, (len(items) - at) // 2) + 1):
        unit, times = items[at : at + period], 1
        while items[at + times * period : at + (times + 1) * period] == unit:
            times += 1
        if times > 1 and period * times > best[0] * best[1]:
            best = period, times
    return best


def fits(call: Call, pattern: CallPattern, groups: Mapping[str, Group]) -> bool:
    """Whether a recorded call is what a scenario states; what is not stated is not compared."""
    return (
        call.op == pattern.op
        and pattern.reduce_op in (None, call.reduce_op)
        and pattern.source in (None, source_of(call))
        and pattern.destination in (None, destination_of(call))
        and pattern.tag in (None, call.tag)
        and pattern.group in (None, *_labels(call, groups), call.group)
        and pattern.phase in (None, call.phase)
        and _fit_tensors(call.own, pattern)
    )


@dataclass(frozen=True, kw_only=True)
class Departure:
    """Where a rank left what was stated."""

    expected: CallPattern | None
    """The call that was due; None where there were no more."""
    got: Call | None
    """What came instead; None where the rank called nothing more."""
    after_gap: bool = False
    """Whether `...` stood before `expected`: it was waited for until the end, and `got` is None."""


def first_departure(
    stated: Sequence[CallPattern], calls: Sequence[Call], groups: Mapping[str, Group]
) -> Departure | None:
    """Where calls differ from what was stated; None if they do not.

    Where `...` leaves several ways to read the calls, the one that gets furthest counts.
    """
    places = _open(stated, {0})
    furthest, at = max(places), 0
    for number, call in enumerate(calls):
        after = {place for place in places if place < len(stated) and stated[place] is ANYTHING}
        for place in places:
            pattern = stated[place] if place < len(stated) else ANYTHING
            if pattern is not ANYTHING and fits(call, pattern, groups):
                after.add(place + 1)
        places = _open(stated, after)
        if not places:
            break
        if max(places) > furthest:
            furthest, at = max(places), number + 1
    if len(stated) in places:
        return None
    expected = stated[furthest] if furthest < len(stated) else None
    if furthest > 0 and stated[furthest - 1] is ANYTHING:
        return Departure(expected=expected, got=None, after_gap=True)
    return Departure(expected=expected, got=calls[at] if at < len(calls) else None)


def _open(stated: Sequence[CallPattern], places: set[int]) -> set[int]:
    """The places with those behind each `...`, which may stand for nothing."""
    found = set(places)
    for place in sorted(places):
        while place < len(stated) and stated[place] is ANYTHING:
            place += 1
            found.add(place)
    return found


def source_of(call: Call) -> int | None:
    """Global rank that the data of the call comes from, where there is another one: what `from` states."""
    return None if call.operation.sends else call.giver


def destination_of(call: Call) -> int | None:
    """Global rank that the data of the call goes to, where there is another one: what `to` states."""
    return None if call.operation.receives else call.taker


def _label(call: Call, groups: Mapping[str, Group]) -> str:
    return _labels(call, groups)[0]


def _labels(call: Call, groups: Mapping[str, Group]) -> tuple[str, ...]:
    """How the group may be called; as it is written first."""
    group = groups.get(call.group)
    return (group.label, group.plain_label) if group is not None else (call.group,)


def _render_tensors(tensors: Iterable[Buffer]) -> str:
    parts = []
    for text, same in groupby(f"{tensor.dtype}[{','.join(map(str, tensor.shape))}]" for tensor in tensors):
        count = len(list(same))
        parts.append(text if count == 1 else f"{count}*{text}")
    return "+".join(parts)


def _fit_tensors(tensors: tuple[Buffer, ...], pattern: CallPattern) -> bool:
    if pattern.tensors is None:
        return True
    return len(tensors) == len(pattern.tensors) and all(
        tensor.dtype == dtype and shape in (None, tensor.shape)
        for tensor, (dtype, shape) in zip(tensors, pattern.tensors, strict=True)
    )
