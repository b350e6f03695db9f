"""The `begin` and `end` lines of a call. For the Python recorder."""

from __future__ import annotations

import ctypes
import functools
import itertools
import json
import threading
import time
from collections.abc import Sequence
from typing import Any

import torch

from . import values
from .journal import journal
from .source import source

_MOST_LAYOUTS = 4096
_LONGEST_REASON = 300
_STRIDED = torch.strided
_now = time.monotonic_ns
_numbers = itertools.count(1)
_layouts: dict[tuple[Any, ...], _Layout] = {}

Tensors = Sequence[torch.Tensor]


class Call:
    """A call that has begun."""

    __slots__ = ("_layout", "_number", "_open", "_results")

    def __init__(self, number: int, results: Tensors, layout: _Layout) -> None:
        self._number, self._results, self._layout, self._open = number, results, layout, True

    def end(self, error: BaseException | None = None, sender: int | None = None) -> None:
        """The call is over; only the first time counts.

        Args:
            error: why it failed.
            sender: group rank from which a receive from any rank got its data.
        """
        if not self._open:
            return
        self._open = False
        now, layout = _now(), self._layout
        if error is not None:
            rest = b',"err":' + json.dumps(_reason(error)).encode()
        else:
            rest = layout.results % layout.said(layout.after, layout.taken(layout.after, self._results))
        if sender is not None:
            rest += b',"peer":%d' % sender
        self._results = ()
        if journal.on:
            journal.put(b'{"k":"end","t":%d,"i":%d%b}\n' % (now, self._number, rest))

    def over(self, future: Any) -> None:
        """The call is over, says a thread of the backend.

        The script waits for the interpreter's lock meanwhile: what came out is only taken here, and written later.

        Args:
            future: knows whether it failed.
        """
        now = _now()
        if self._open and journal.on:
            self._open = False
            journal.put(b'{"k":"end","t":%d,"i":%d}\n' % (now, self._number))
            layout = self._layout
            taken = layout.taken(layout.after, self._results)
            journal.later.append(functools.partial(_tell_results, self._number, layout, taken, future))
            self._results = ()
        if not hasattr(_thread, "state"):
            # What the interpreter makes for a thread of the backend it would throw away at the end of every callback.
            _thread.state = ctypes.pythonapi.PyGILState_Ensure()


_thread = threading.local()


def _tell_results(number: int, layout: _Layout, taken: list[bytes], future: Any) -> None:
    try:
        future.value()
    except Exception as error:
        rest = b',"err":' + json.dumps(_reason(error)).encode()
    else:
        rest = layout.results % layout.said(layout.after, taken)
    if rest and journal.on:
        journal.put(b'{"k":"after","t":%d,"i":%d%b}\n' % (_now(), number, rest))


class _Layout:
    """What all calls with tensors of the same shapes and types have in common."""

    __slots__ = ("after", "before", "line", "results")

    def __init__(self, inputs: Tensors | None, outputs: Tensors | None, fields: dict[str, Any]) -> None:
        kind, self.before = _readers(inputs or (), b"iv", b"is")
        kind_after, self.after = _readers(outputs if outputs is not None else inputs or (), b"ov", b"os")
        facts = dict(fields)
        if inputs is not None:
            facts["in"], facts["ib"] = _shapes(inputs)
        if outputs is not None:
            facts["out"], facts["ob"] = _shapes(outputs)
        text = json.dumps(facts, separators=(",", ":"))[1:-1].encode().replace(b"%", b"%%")
        contents = b',"%b":[%%b]' % kind if kind else b"%b"
        self.line = b'{"k":"begin","t":%%d,"i":%%d,%b%%b%b%%b}\n' % (text, contents)
        """Wants the time, the number, the number in the group, the contents and the source."""
        self.results = b',"%b":[%%b]' % kind_after if kind_after else b"%b"
        """Wants the contents."""

    @staticmethod
    def taken(readers: Sequence[values.Reader], tensors: Tensors) -> list[bytes]:
        """What is needed of the tensors of one side; `readers` has none, or one for each."""
        return [reader.take(tensor) for reader, tensor in zip(readers, tensors)]

    @staticmethod
    def said(readers: Sequence[values.Reader], taken: list[bytes]) -> bytes:
        """The same as JSON."""
        return b",".join([reader.say(data) for reader, data in zip(readers, taken)])


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
    if journal.later:
        journal.catch_up()
    number = next(_numbers)
    contents = layout.said(layout.before, layout.taken(layout.before, inputs)) if inputs else b""
    sequence, (at, more) = b',"seq":%d' % seq if seq else b"", source.place(3)
    journal.put(layout.line % (_now(), number, sequence, contents, at + more))
    return Call(number, outputs if outputs is not None else inputs or (), layout)


def _key(tensors: Tensors | None) -> Any:
    """What decides how tensors are described."""
    if tensors is None:
        return None
    return _key_of(tensors[0]) if len(tensors) == 1 else tuple(map(_key_of, tensors))


def _key_of(t: torch.Tensor) -> tuple[Any, ...]:
    layout = t.layout
    return t.shape, t.dtype, layout, t.is_cpu, type(t), layout is _STRIDED and t.is_contiguous(), t.is_neg()


def _readers(tensors: Tensors, whole: bytes, summary: bytes) -> tuple[bytes, list[values.Reader]]:
    """Under which name the contents of one side of a call are kept, and what reads them; nothing where none is kept."""
    readable = [values.is_readable(t) for t in tensors]
    if not journal.values or not any(readable):
        return b"", []
    count = sum(t.numel() for t, ok in zip(tensors, readable) if ok)
    kept = count <= journal.values
    readers = [values.reader(t, kept) if ok else values.UNREADABLE for t, ok in zip(tensors, readable)]
    return whole if kept else summary, readers


def _shapes(tensors: Tensors) -> tuple[list[Any], int]:
    described = [[str(t.dtype).partition(".")[2], list(t.shape)] for t in tensors]
    return described, sum(t.numel() * t.element_size() for t in tensors if t.layout is torch.strided)


def _reason(error: BaseException) -> str:
    return (str(error).partition("\n")[0] or type(error).__name__)[:_LONGEST_REASON]
