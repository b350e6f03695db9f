"""How one call, several calls, and the difference of two are told in words; calls are given in their notation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

from lab.errors import ScenarioError
from lab.spec.calls import CallPattern, parse_calls
from lab.trace.notation import render_tensors
from lab.words import format_bytes, listing

_MOST_KINDS = 3
_NUMBERS = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


@lru_cache(maxsize=4096)
def _parsed(text: str) -> CallPattern:
    try:
        return parse_calls(text, longest=len(text))[0]
    except (ScenarioError, IndexError):  # an operation or a dtype that is not known here
        return CallPattern(text=text, op=text.partition(" ")[0])


def kind_of(text: str) -> str:
    """What two calls have in common of which one may have become the other: operation, group and bucket."""
    call = _parsed(text)
    return f"{call.op} {call.group or ''} {call.bucket or ''}"


def _bytes(call: CallPattern) -> int | None:
    """Of its tensors; None where their sizes are open."""
    total = 0
    for dtype, shape in call.tensors or ():
        if shape is None:
            return None
        count = 1
        for size in shape:
            count *= size
        bits = "".join(letter for letter in dtype.partition("_")[0] if letter.isdecimal())
        total += count * (int(bits) // 8 if bits else 1)
    return total if call.tensors else None


def _size(call: CallPattern) -> str:
    size = _bytes(call)
    return "" if size is None else format_bytes(size)


def name_of(text: str) -> str:
    """`all_reduce (SUM float32[1024], 4.1 kB)`; `all_reduce of DDP's second bucket (2.1 MB)`."""
    call = _parsed(text)
    if call.bucket is not None:
        return f"{call.op} of {_bucket(call)} ({_size(call)})"
    rest = text.removeprefix(call.op).strip()
    inside = _joined([rest, _size(call)])
    return f"{call.op} ({inside})" if inside else call.op


def _joined(words: Sequence[str]) -> str:
    """`a, b`; those that are empty are left out."""
    return ", ".join(word for word in words if word)


def _bucket(call: CallPattern) -> str:
    number = call.bucket or 0
    which = _NUMBERS[number] + " bucket" if 0 < number < len(_NUMBERS) else f"bucket {number}"
    return f"DDP's {which}" if call.module in (None, 1) else f"the {which} of DDP module {call.module}"


def several_more(texts: Sequence[str]) -> str:
    """`one more barrier`, `3 more calls: ...`."""
    if len(texts) == 1:
        return f"one more {name_of(texts[0])}"
    return f"{len(texts)} more calls: {_kinds(texts)}"


def several(texts: Sequence[str]) -> str:
    """The call, or how many, and of what kinds."""
    return name_of(texts[0]) if len(texts) == 1 else f"{len(texts)} calls ({_kinds(texts)})"


def _kinds(texts: Sequence[str]) -> str:
    counts = Counter(texts)
    words = [
        name_of(text) if n == 1 else f"{n} times {name_of(text)}" for text, n in list(counts.items())[:_MOST_KINDS]
    ]
    more = len(counts) - len(words)
    return listing([*words, f"{more} other{'s' * (more > 1)}" if more else ""])


def replaced(gone: str, come: str, than: str) -> str:
    """That one call stands in the place of another, with what differs; for who does that, see `change_words`."""
    was, now = _parsed(gone), _parsed(come)
    if was.op != now.op:
        return f"{{Who}} call{{s}} {name_of(come)}, where {than} has {name_of(gone)}"
    changed = [(words(was), words(now)) for words in _WORDS if words(was) != words(now)]
    if len(changed) == 1 and now.bucket is not None and _tensors(was) != _tensors(now):
        sizes = _bytes(was) or 0, _bytes(now) or 0
        if sizes[0] != sizes[1]:
            grew = "grew" if sizes[1] > sizes[0] else "shrank"
            return f"{{who}}{_bucket(now)} {grew} from {_size(was)} to {_size(now)}"
    if not changed:
        return f"{{Who}} call{{s}} {come}, where {than} has {gone}"
    old, new = (" ".join(words) for words in zip(*changed, strict=True))
    return f"{{Who}} call{{s}} {now.op} {new}, where {than} has it {old}"


def _tensors(call: CallPattern) -> str:
    size = _size(call)
    text = render_tensors(call.tensors or ())
    return f"with {text}{f' ({size})' if size else ''}" if text else "without a tensor"


def _or(value: object, said: str, nothing: str) -> str:
    return nothing if value is None else f"{said}{value}"


_WORDS: tuple[Callable[[CallPattern], str], ...] = (
    lambda call: _or(call.reduce_op, "with ", "without a reduction"),
    _tensors,
    lambda call: _or(call.split and list(call.split), "split ", "split evenly"),
    lambda call: "from any rank" if call.from_any else _or(call.source, "from rank ", "from no rank"),
    lambda call: _or(call.destination, "to rank ", "to no rank"),
    lambda call: _or(call.tag, "with tag ", "without a tag"),
    lambda call: _or(call.group, "in group ", "in the default group"),
    lambda call: "with a handle to wait for" if call.hands_out else "without a handle",
    lambda call: f"for {_bucket(call)}" if call.bucket is not None else "for no bucket of DDP",
    lambda call: _or(call.phase, "during ", "outside of any phase"),
)
"""What a call says, part by part."""
