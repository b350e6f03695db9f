"""Recorded calls in the notation in which a scenario would state them, with what repeats written once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from lab.trace.model import Call, Group


class Repeated(NamedTuple):
    """Items that come several times, one round after the other."""

    times: int
    items: list[str | Repeated]


def fold(items: Sequence[str], longest: int) -> list[str | Repeated]:
    """The items with what repeats put together, rounds of up to so many items; rounds may hold rounds."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        places[item].append(place)
    turn = dict.fromkeys(places, 0)
    folded: list[str | Repeated] = []
    at = 0
    while at < len(items):
        item = items[at]
        found = places[item]
        while found[turn[item]] < at:
            turn[item] += 1
        again = found[turn[item] + 1 : turn[item] + 1 + longest]
        period, times = _repetition(items, at, [place - at for place in again if place - at <= longest])
        if times == 1:
            folded.append(item)
        else:
            inside = items[at : at + period]
            folded.append(Repeated(times, [item] if period == 1 else fold(inside, longest)))
        at += period * times
    return folded


def _repetition(items: Sequence[str], at: int, periods: Sequence[int]) -> tuple[int, int]:
    """How many items from a place on repeat, and how often: what covers most, then the shortest; (1, 1) for none."""
    best = (1, 1)
    for period in periods:
        times = 1
        while _same(items, at, at + times * period, period):
            times += 1
        if times > 1 and period * times > best[0] * best[1]:
            best = period, times
    return best


def _same(items: Sequence[str], first: int, second: int, length: int) -> bool:
    return second + length <= len(items) and all(items[first + i] == items[second + i] for i in range(length))


_LONGEST_PERIOD = 24
"""Most calls of which a repetition is noticed."""


def render_call(
    call: Call, groups: Mapping[str, Group], *, phase: bool = False, whole: bool = False, sizes: bool = True
) -> str:
    """The call as a scenario would state it: `broadcast float32[165] from 0`; with its phase if that is asked for.

    If it is to be `whole`, also what the script did with it: whether it took a handle, the bucket, splits; and whom a
    receive from any rank received from is left open then, as that differs from run to run. Without `sizes`, shapes are.
    """
    words = [call.op]
    if call.reduce_op:
        words.append(call.reduce_op)
    if call.own:
        words.append(render_tensors((tensor.dtype, tensor.shape if sizes else None) for tensor in call.own))
    split = split_of(call)
    if whole and split:
        words.append(f"split [{','.join(map(str, split))}]")
    if whole and call.from_any:
        words.append("from any")
    elif (source := source_of(call)) is not None:
        words.append(f"from {source}")
    if (destination := destination_of(call)) is not None:
        words.append(f"to {destination}")
    if call.tag:
        words.append(f"tag {call.tag}")
    label = _label(call, groups)
    if label != "default":
        words.append(f'in "{label}"' if " " in label and not (label[0] == "[" and label[-1] == "]") else f"in {label}")
    if whole:
        words += _how(call)
    if phase and call.phase:
        words.append(f"during {call.phase}")
    return " ".join(words)


def _how(call: Call) -> list[str]:
    """What there is to say of a call besides what it does."""
    words = ["async"] if call.hands_out else []
    if (bucket := bucket_of(call)) is not None:
        words.append(f"bucket {bucket}")
        words += [f"module {call.module}"] if call.module != 1 else []
    return words


def render_calls(calls: Iterable[Call], groups: Mapping[str, Group], *, phase: bool = False) -> list[str]:
    """Calls in order as the items of a list, with what repeats written once: `all_reduce x3`, `(send, recv) x4`."""
    texts = [render_call(call, groups, phase=phase) for call in calls]
    return [_text(one) for one in fold(texts, _LONGEST_PERIOD)]


def _text(one: str | Repeated) -> str:
    if isinstance(one, str):
        return one
    inside = ", ".join(map(_text, one.items))
    return f"{inside if len(one.items) == 1 else f'({inside})'} x{one.times}"


def source_of(call: Call) -> int | None:
    """Global rank that the data of the call comes from, where there is another one: what `from` states."""
    return None if call.operation.sends else call.giver


def destination_of(call: Call) -> int | None:
    """Global rank that the data of the call goes to, where there is another one: what `to` states."""
    return None if call.operation.receives else call.taker


def split_of(call: Call) -> tuple[int, ...] | None:
    """How many rows go to each rank, where that was said."""
    return (call.splits[1] or None) if call.splits else None


def bucket_of(call: Call) -> int | None:
    """Which bucket of its DDP module it reduces, from 1."""
    return None if call.bucket is None else call.bucket + 1


def _label(call: Call, groups: Mapping[str, Group]) -> str:
    return labels_of(call, groups)[0]


def labels_of(call: Call, groups: Mapping[str, Group]) -> tuple[str, ...]:
    """How the group may be called; as it is written first."""
    group = groups.get(call.group)
    return (group.label, group.plain_label) if group is not None else (call.group,)


def render_tensors(tensors: Iterable[tuple[str, tuple[int, ...] | None]]) -> str:
    """Dtypes and shapes, None for any: `3*float32[1]+int64`."""
    texts = [dtype if shape is None else f"{dtype}[{','.join(map(str, shape))}]" for dtype, shape in tensors]
    parts = []
    for text, same in groupby(texts):
        count = len(list(same))
        parts.append(text if count == 1 else f"{count}*{text}")
    return "+".join(parts)
