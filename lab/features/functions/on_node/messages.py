"""Messages between a rank that takes calls and its caller: pieces of a known kind and length, plain data, values."""

from __future__ import annotations

import enum
import json
import math
import struct
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from pathlib import PurePath
from typing import Any, NamedTuple, Optional


class Frame(NamedTuple):
    """A frame of a traceback."""

    file: str
    line: int
    function: str
    first_line: int
    """First line of the function."""
    arguments: dict[str, str]
    """Its arguments, as text."""
    variables: dict[str, str]
    """Its other local variables, as text; only on request."""
    hidden: bool = False
    """Whether the function hides itself from tracebacks."""


class Failure(NamedTuple):
    """An exception of a function."""

    module: str
    kind: str
    """Qualified name of its class."""
    text: str
    frames: tuple[Frame, ...]
    """Outermost first."""
    notes: tuple[str, ...] = ()
    cause: Optional[Failure] = None
    """Its `__cause__`."""
    context: Optional[Failure] = None
    """Its `__context__`; None if it must not be shown."""


class State(NamedTuple):
    """State of a rank after a call."""

    used_up: str = ""
    """Why the rank should take no other call; empty: it can."""
    groups: int = 0
    """How many process groups it has created."""


BEGIN = b"B"
"""From the caller, first: the backend of the process group, as text; empty: no process group."""
CALL = b"C"
"""From the caller, two pickles: how to make a call, see `lab.features.functions.pack`; a function and its arguments."""
MODULE = b"M"
"""From a rank: the name of a module that it lacks. From the caller: that module's files, or nothing; plain data."""
READY = b"R"
"""From a rank, first: it has joined the process group. Its Python version, `3.11`: functions are sent as bytecode.
"""
STATE = b"S"
"""From a rank, before the return value of a function: its state; plain data."""
VALUE = b"V"
"""From a rank: the return value of the function, as `write_value` writes it."""
FAILURE = b"F"
"""From a rank: the exception of the function; plain data."""
KEPT = b"K"
"""From a rank: why it cannot send the return value; text."""

LIMIT_BYTES = 64 << 20
"""Size of the largest piece, in both directions."""
_HEAD = struct.Struct(">cQ")


class TooLong(ValueError):
    """A piece is longer than the limit."""


def pack_piece(kind: bytes, body: bytes) -> bytes:
    """Return a piece as bytes."""
    return _HEAD.pack(kind, len(body)) + body


class Pieces:
    """Assembles pieces from chunks."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._waiting = bytearray()

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return every piece that ends in this chunk, as its kind and content.

        Raises:
            TooLong: A piece exceeds the limit; the reader cannot continue after that.
        """
        self._waiting += chunk
        while len(self._waiting) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._waiting)
            if length > self._limit_bytes:
                raise TooLong(f"it has a piece of {length:,} bytes; allowed: at most {self._limit_bytes:,}")
            end = _HEAD.size + length
            if len(self._waiting) < end:
                return
            body = bytes(self._waiting[_HEAD.size : end])
            del self._waiting[:end]
            yield kind, body


DEEPEST = 100
"""Deepest nesting of containers."""
MOST_PLAIN_BYTES = 16 << 20
"""Limit of everything except tensors and arrays, as JSON; the reader may need fifty times as much memory."""
HEAD = struct.Struct(">Q")
CONTAINERS: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset", deque: "deque"}
MAPPINGS: dict[type, str] = {dict: "dict", OrderedDict: "ordered", Counter: "counter"}
KIND_OF = {name: kind for kind, name in (*CONTAINERS.items(), *MAPPINGS.items())}
_ALLOWED = "numbers, text, bytes, containers, tensors, arrays, dataclasses, named tuples, and enums"


class Unsendable(TypeError):
    """A value is not data; the message says what and where, and what is allowed."""


def write_value(value: Any, limit_bytes: int) -> bytes:
    """Return a value as bytes.

    Raises:
        Unsendable: It contains something that is not data, or exceeds the limit.
    """
    writer = _Writer(limit_bytes)
    text = json.dumps(writer.plain(value, "", 0), separators=(",", ":")).encode("utf-8", "surrogatepass")
    writer.reserve(len(text))
    if len(text) > MOST_PLAIN_BYTES:
        raise Unsendable(f"more than {MOST_PLAIN_BYTES:,} bytes besides tensors and arrays: return them as a tensor")
    return b"".join((HEAD.pack(len(text)), text, *writer.blobs))


class _Writer:
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self.blobs: list[bytes] = []

    def reserve(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._limit_bytes:
            raise Unsendable(f"more than {self._limit_bytes:,} bytes, which is the limit of a return value")

    def _blob(self, data: bytes) -> int:
        self.reserve(len(data))
        self.blobs.append(data)
        return len(data)

    def plain(self, value: Any, where: str, depth: int) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return value if abs(value) < 1 << 63 else ["int", hex(value)]
        if kind is float:
            return value if math.isfinite(value) else ["float", repr(value)]
        if depth >= DEEPEST:
            raise Unsendable(f"containers nested more than {DEEPEST} deep (or in themselves)")

        def inner(item: Any, suffix: str) -> Any:
            return self.plain(item, f"{where}{suffix}", depth + 1)

        name = [kind.__module__, kind.__qualname__]
        if kind in CONTAINERS:
            return [CONTAINERS[kind], [inner(item, f"[{index}]") for index, item in enumerate(value)]]
        if kind in MAPPINGS:
            pairs = [[inner(key, " (a key)"), inner(item, f"[{key!r:.60}]")] for key, item in value.items()]
            return [MAPPINGS[kind], pairs]
        if kind in (bytes, bytearray):
            return [kind.__name__, self._blob(bytes(value))]
        if kind in (datetime, date):
            return [kind.__name__, value.isoformat()]
        if kind is timedelta:
            return ["timedelta", value.days, value.seconds, value.microseconds]
        if isinstance(value, PurePath):
            return ["path", str(value)]
        if kind is complex:
            return ["complex", repr(value)]
        if isinstance(value, enum.Enum):
            return ["enum", *name, value.name]
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return ["named", *name, [inner(item, f".{field}") for field, item in zip(kind._fields, value)]]
        if is_dataclass(kind):
            names = [field.name for field in fields(kind) if hasattr(value, field.name)]
            return ["fields", *name, {name: inner(getattr(value, name), f".{name}") for name in names}]
        if (special := self._special(value, kind, where)) is None:
            raise Unsendable(f"{_kind_name(value)}{where}; allowed: {_ALLOWED}")
        return special

    def _special(self, value: Any, kind: type, where: str) -> list[Any] | None:
        """Return the plain form of an object of numpy or torch, if the function imported them; None: it is none."""
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            if value.dtype.hasobject or value.dtype.names:
                raise Unsendable(f"an array of {value.dtype}{where}; allowed: arrays of numbers or text")
            name = "array" if isinstance(value, numpy.ndarray) else "scalar"
            return [name, value.dtype.str, list(value.shape), self._blob(value.tobytes())]
        if torch is None:
            return None
        if isinstance(value, torch.Tensor):
            if kind not in (torch.Tensor, torch.nn.Parameter):
                raise Unsendable(
                    f"{_kind_name(value)}{where}: return `.to_local()`, `.full_tensor()` or a plain tensor"
                )
            return self._tensor(torch, value, kind is torch.nn.Parameter, where)
        if isinstance(value, (torch.dtype, torch.device)):
            return [kind.__name__, str(value)]
        return ["Size", list(value)] if isinstance(value, torch.Size) else None

    def _tensor(self, torch: Any, value: Any, parameter: bool, where: str) -> list[Any]:
        data, how = value.detach(), {"grad": bool(value.requires_grad), "parameter": parameter}
        if data.layout is not torch.strided or data.is_quantized or data.is_meta:
            raise Unsendable(f"a tensor of {data.layout}{where}; allowed: dense tensors")
        data = data.cpu().resolve_conj().resolve_neg().contiguous()
        raw = data.reshape(-1).view(torch.uint8) if data.numel() else data.new_empty(0, dtype=torch.uint8)
        try:
            size = self._blob(raw.numpy().tobytes())
        except RuntimeError:  # torch without numpy
            size = self._blob(bytes(raw.tolist()))
        return ["tensor", str(data.dtype).rpartition(".")[2], list(data.shape), size, how]


def _kind_name(value: Any) -> str:
    kind = type(value)
    return f"a {kind.__qualname__}" if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__qualname__}"
