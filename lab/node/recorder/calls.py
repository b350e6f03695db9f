"""The `begin` and `end` lines of a call. For the Python recorder."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from typing import Any

import torch

from . import values
from .journal import journal
from .source import source

_MOST_LAYOUTS = 4096
_LONGEST_REASON = 300
_now = time.monotonic_ns
_numbers = itertools.count(1)
_layouts: dict[tuple[Any, ...], _Layout] = {}

Tensors = Sequence[torch.Tensor]


class Call:
    """A call that has begun."""

    __slots__ = ("_kind", "_number", "_open", "_readable", "_results", "_whole")

    def __init__(self, number: int, results: Tensors, layout: _Layout) -> None:
        self._number = number
        self._open = True
        self._results = results if layout.after else ()
        self._readable = layout.readable_after
        self._whole = layout.after == b"ov"
        self._kind = layout.after

    def end(self, error: BaseException | None = None, sender: int | None = None) -> None:
        """The call is over; only the first time counts.

        Args:
            error: why it failed.
            sender: group rank from which a receive from any rank got its data.
        """
        if not self._open:
            return
        self._open = False
        rest = b""
        now = _now()
        if error is not None:
            rest = b',"err":' + json.dumps(_reason(error)).encode()
        elif self._results:
            contents = values.describe(self._results, self._readable, self._whole)
            rest = b',"%b":%b' % (self._kind, contents)
        if sender is not None:
            rest += b',"peer":%d' % sender
        self._results = ()
        journal.write(b'{"k":"end","t":%d,"i":%d%b}\n' % (now, self._number, rest))


class _Layout:
    """What all calls with tensors of the same shapes and types have in common."""

    __slots__ = ("after", "before", "readable_after", "readable_before", "text")

    def __init__(self, inputs: Tensors | None, outputs: Tensors | None, fields: dict[str, Any]) -> None:
        results = outputs if outputs is not None else inputs or ()
        self.readable_before = [values.is_readable(t) for t in inputs or ()]
        self.readable_after = [values.is_readable(t) for t in results]
        self.before = _kind_of(inputs or (), self.readable_before, b"iv", b"is")
        self.after = _kind_of(results, self.readable_after, b"ov", b"os")
        facts = dict(fields)
        if inputs is not None:
            facts["in"], facts["ib"] = _shapes(inputs)
        if outputs is not None:
            facts["out"], facts["ob"] = _shapes(outputs)
        self.text = json.dumps(facts, separators=(",", ":"))[1:-1].encode()


def begin(
    group: str, seq: int, op: str, inputs: Tensors | None, outputs: Tensors | None, fields: tuple[Any, ...]
) -> Call:
    """Write that a call begins.

    Args:
        group: name of the process group.
        seq: number of the collective within it; 0 for point to point.
        op: name of the operation.
        inputs: what it takes; None for calls without tensors.
        outputs: what it fills; None for calls in place.
        fields: name, value, name, value, ... of what else is to be said.
    """
    key = (op, group, fields, _key(inputs), _key(outputs))
    layout = _layouts.get(key)
    if layout is None:
        if len(_layouts) >= _MOST_LAYOUTS:
            _layouts.clear()
        named = dict(zip(fields[::2], fields[1::2]))
        layout = _layouts[key] = _Layout(inputs, outputs, {"op": op, "g": group, **named})
    number = next(_numbers)
    text = layout.text
    if seq:
        text += b',"seq":%d' % seq
    if layout.before and inputs:
        text += b',"%b":%b' % (layout.before, values.describe(inputs, layout.readable_before, layout.before == b"iv"))
    text += source.fragment(3)
    call = Call(number, outputs if outputs is not None else inputs or (), layout)
    journal.write(b'{"k":"begin","t":%d,"i":%d,%b}\n' % (_now(), number, text))
    return call


def _key(tensors: Tensors | None) -> Any:
    """What decides how tensors are described."""
    if tensors is None:
        return None
    return tuple([(t.shape, t.dtype, t.layout, t.is_cpu, type(t), t.is_conj()) for t in tensors])


def _kind_of(tensors: Tensors, readable: Sequence[bool], whole: bytes, summary: bytes) -> bytes:
    """Under which name the contents of one side of a call are kept; empty where nothing of them is."""
    if not journal.values or not any(readable):
        return b""
    count = sum(t.numel() for t, ok in zip(tensors, readable) if ok)
    return whole if count <= journal.values else summary


def _shapes(tensors: Tensors) -> tuple[list[Any], int]:
    described = [[str(t.dtype).partition(".")[2], list(t.shape)] for t in tensors]
    return described, sum(t.numel() * t.element_size() for t in tensors if t.layout is torch.strided)


def _reason(error: BaseException) -> str:
    return (str(error).partition("\n")[0] or type(error).__name__)[:_LONGEST_REASON]
