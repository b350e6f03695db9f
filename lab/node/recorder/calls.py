"""The `begin` and `end` lines of a call. For the Python recorder."""

from __future__ import annotations

import ctypes
import itertools
import json
import operator
import threading
import time
from typing import Any

import torch

from . import values
from .journal import journal
from .source import source

_MOST_LAYOUTS = 4096
_LONGEST_REASON = 300
_STRIDED = torch.strided
_now = time.monotonic_ns
_facts = operator.attrgetter("layout", "shape", "dtype", "is_cpu", "__class__")
_numbers = itertools.count(1)
_layouts: dict[tuple[Any, ...], _Layout] = {}
_thread = threading.local()

Tensors = values.Tensors


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
        now = _now()
        if self._open and journal.on:
            self._open = False
            rest = self._layout.after(self._results) if error is None else _failure(error)
            if sender is not None:
                rest += b',"peer":%d' % sender
            journal.put(b'{"k":"end","t":%d,"i":%d%b}\n' % (now, self._number, rest))
        self._results = ()

    def over(self, future: Any) -> None:
        """The call is over, says a thread of the backend.

        Args:
            future: knows whether it failed.
        """
        now = _now()
        if self._open and journal.on:
            self._open = False
            rest = self._layout.after(self._results)
            try:
                future.value()
            except Exception as error:
                rest = _failure(error)
            line = b'{"k":"end","t":%d,"i":%d%b}\n' % (now, self._number, rest)
            try:
                journal.copy(line)
            except ValueError:
                journal.put(line)
        if not hasattr(_thread, "state"):
            # What the interpreter makes for a thread of the backend it would throw away at the end of every callback.
            _thread.state = ctypes.pythonapi.PyGILState_Ensure()


class _Layout:
    """What all calls with tensors of the same shapes and types have in common."""

    __slots__ = ("after", "before", "line")

    def __init__(self, inputs: Tensors | None, outputs: Tensors | None, seq: int, fields: dict[str, Any]) -> None:
        self.before = values.contents(inputs or (), journal.values, b"iv", b"is")
        """What a begin line says of the inputs."""
        self.after = values.contents(inputs or () if outputs is None else outputs, journal.values, b"ov", b"os")
        """What an end line says of the outputs."""
        facts = dict(fields)
        if inputs is not None:
            facts["in"], facts["ib"] = _shapes(inputs)
        if outputs is not None:
            facts["out"], facts["ob"] = _shapes(outputs)
        text = json.dumps(facts, separators=(",", ":"))[1:-1].encode().replace(b"%", b"%%")
        number = b',"seq":%d' if seq else b"%.0a"  # the latter says nothing
        self.line = b'{"k":"begin","t":%%d,"i":%%d,%b%b%%b%%b}\n' % (text, number)
        """Wants the time, the number, the number in the group, the contents and the source."""


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
    taken = None if inputs is None else tuple(map(_key_of, inputs))
    filled = None if outputs is None else tuple(map(_key_of, outputs))
    key = (op, group, fields, taken, filled)
    layout = _layouts.get(key)
    if layout is None:
        if len(_layouts) >= _MOST_LAYOUTS:
            _layouts.clear()
        named = dict(zip(fields[::2], fields[1::2]))
        layout = _layouts[key] = _Layout(inputs, outputs, seq, {"op": op, "g": group, **named})
    number = next(_numbers)
    contents = layout.before(inputs) if inputs else b""
    line = layout.line % (_now(), number, seq, contents, source.place(3)[1])
    try:
        journal.copy(line)
    except ValueError:
        journal.put(line)
    return Call(number, outputs if outputs is not None else inputs or (), layout)


def _key_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    facts = _facts(tensor)
    return facts, facts[0] is _STRIDED and tensor.is_contiguous(), tensor.is_neg()


def _shapes(tensors: Tensors) -> tuple[list[Any], int]:
    described = [[str(t.dtype).partition(".")[2], list(t.shape)] for t in tensors]
    return described, sum(t.numel() * t.element_size() for t in tensors if t.layout is torch.strided)


def _failure(error: BaseException) -> bytes:
    reason = (str(error).partition("\n")[0] or type(error).__name__)[:_LONGEST_REASON]
    return b',"err":' + json.dumps(reason).encode()
