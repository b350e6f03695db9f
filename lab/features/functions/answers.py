"""Read what a function returned or raised on ranks, without calling anything that the bytes name."""

from __future__ import annotations

import ast
import builtins
import enum
import json
import keyword
import os
import re
import sys
import traceback
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from types import FrameType, ModuleType, TracebackType
from typing import Any

from lab.diagnosis.errors import is_loss
from lab.errors import LabError, RanksFailed
from lab.features.functions.on_node.messages import HEAD, KIND_OF, MAPPINGS, MOST_PLAIN_BYTES, Failure, Frame
from lab.report.sanitize import sanitize_text
from lab.report.style import group_equal
from lab.words import name_ranks


class Misread(ValueError):
    """The bytes are not a valid value, or a value that the lab does not accept; the message says why."""


Classes = Mapping[tuple[str, str], "type | None"]
"""Classes that the caller sent by value, by module and name; None: two have the same name."""


def known_class(module: str, name: str, sent: Classes | None = None) -> type:
    """Return a class that was sent, or of an imported module; import and run nothing for that.

    Args:
        module: Its module.
        name: Its qualified name.
        sent: Classes that were sent.

    Raises:
        Misread: There is none, or it has a `__del__`, which would run code.
    """
    candidate: Any = (sent or {}).get((module, name))
    if candidate is None:
        candidate = sys.modules.get(module)
        for part in name.split("."):
            candidate = vars(candidate).get(part) if isinstance(candidate, type | ModuleType) else None
        if candidate is None:
            raise Misread(f"it holds a {module}.{name}, a class that is unknown here: import {module} here too")
    if not isinstance(candidate, type) or hasattr(candidate, "__del__"):
        raise Misread(f"it holds a {module}.{name}, which is not a class of plain data")
    return candidate


def read_value(data: bytes, classes: Classes | None = None) -> Any:
    """Read the value that bytes encode, without calling anything that they name.

    Args:
        data: From `write_value`, or from an attacker.
        classes: Classes that were sent.

    Raises:
        Misread: They are not a value.
    """
    try:
        (length,) = HEAD.unpack_from(data)
        end = HEAD.size + length
        if end > len(data):
            raise Misread("the data ends too early")
        if length > MOST_PLAIN_BYTES:
            raise Misread(f"the data has more than {MOST_PLAIN_BYTES:,} bytes in addition to tensors and arrays")
        reader = _Reader(memoryview(data)[end:], classes)
        return reader.value(json.loads(data[HEAD.size : end].decode("utf-8", "surrogatepass")))
    except Misread:
        raise
    except RecursionError:
        raise Misread("the data is nested too deep") from None
    except Exception as error:  # noqa: BLE001 - whatever hostile bytes make torch and numpy say
        raise Misread(f"{type(error).__name__}: {error}"[:200]) from None


def _torch() -> Any:
    import torch

    return torch


def _read_dtype(name: str) -> Any:
    dtype = getattr(_torch(), name.rpartition(".")[2], None)
    if not isinstance(dtype, _torch().dtype):
        raise Misread(f"{name!r:.60} is not a dtype")
    return dtype


_MADE_OF_PLAIN: dict[Any, Callable[..., Any]] = {
    "int": lambda text: int(text, 16),
    "float": float,
    "complex": complex,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "timedelta": timedelta,
    "path": Path,
    "Size": lambda shape: _torch().Size(shape),
    "device": lambda name: _torch().device(name),
    "dtype": _read_dtype,
}


class _Reader:
    def __init__(self, blobs: memoryview, classes: Classes | None) -> None:
        self._blobs, self._classes = blobs, classes

    def _blob(self, size: Any) -> bytearray:
        if type(size) is not int or not 0 <= size <= len(self._blobs):
            raise Misread("the data ends too early")
        data, self._blobs = bytearray(self._blobs[:size]), self._blobs[size:]
        return data

    def value(self, plain: Any) -> Any:
        if not isinstance(plain, list):
            if isinstance(plain, dict):
                raise Misread("it has a mapping where none is allowed")
            return plain
        kind, *rest = plain
        if kind in KIND_OF:
            (items,) = rest
            if KIND_OF[kind] not in MAPPINGS:
                return KIND_OF[kind](self.value(item) for item in items)
            return KIND_OF[kind]({self.value(key): self.value(item) for key, item in items})
        if kind in ("bytes", "bytearray"):
            data = self._blob(*rest)
            return bytes(data) if kind == "bytes" else data
        if kind in _MADE_OF_PLAIN:
            return _MADE_OF_PLAIN[kind](*rest)
        method = getattr(self, f"_read_{kind}", None) if isinstance(kind, str) and kind.isalpha() else None
        if method is None:
            raise Misread(f"{kind!r:.60} is not a kind of value")
        return method(*rest)

    def _read_enum(self, module: str, name: str, member: str) -> Any:
        kind = known_class(module, name, self._classes)
        if not issubclass(kind, enum.Enum) or member not in kind.__members__:
            raise Misread(f"{module}.{name} is not an enum with a member {member!r:.60}")
        return kind.__members__[member]

    def _read_named(self, module: str, name: str, items: Any) -> Any:
        kind = known_class(module, name, self._classes)
        if not issubclass(kind, tuple) or len(getattr(kind, "_fields", ())) != len(items):
            raise Misread(f"{module}.{name} is not a named tuple of {len(items)}")
        return tuple.__new__(kind, map(self.value, items))

    def _read_fields(self, module: str, name: str, values: Any) -> Any:
        kind = known_class(module, name, self._classes)
        if not is_dataclass(kind) or not values.keys() <= {field.name for field in fields(kind)}:
            raise Misread(f"{module}.{name} is not a dataclass with the fields {', '.join(map(str, values))[:100]}")
        made = object.__new__(kind)
        for field, item in values.items():
            object.__setattr__(made, field, self.value(item))
        return made

    def _read_array(self, dtype: str, shape: Any, size: Any) -> Any:
        import numpy as np

        kind = np.dtype(dtype)
        if kind.hasobject:
            raise Misread("it has an array of objects")
        return np.frombuffer(self._blob(size), dtype=kind).reshape(shape)

    def _read_scalar(self, dtype: str, shape: Any, size: Any) -> Any:
        return self._read_array(dtype, shape, size)[()]

    def _read_tensor(self, dtype: str, shape: Any, size: Any, how: Any) -> Any:
        data, kind = self._blob(size), _read_dtype(dtype)
        flat = _torch().frombuffer(data, dtype=kind) if data else _torch().empty(0, dtype=kind)
        tensor, has_grad = flat.reshape(shape), how["grad"] is True
        return _torch().nn.Parameter(tensor, has_grad) if how["parameter"] else tensor.requires_grad_(has_grad)


_MADE_IN_PYTHON = 1 << 9
"""The flag of classes that are not part of the interpreter."""
_SHADOWED = ("message", "hint", "ranks", "record", "shown_inside")
"""Attributes of RanksFailed that can be read-only properties of the other class."""


def known_exception(module: str, name: str, classes: Classes | None = None) -> type[BaseException] | None:
    """Return an exception class that the caller sent or imported, see `known_class`; None if there is none."""
    with suppress(Misread):
        kind = known_class(module, name, classes)
        return kind if issubclass(kind, BaseException) else None
    return None


def caught_as(kind: type[BaseException] | None) -> type[RanksFailed]:
    """Return a class that is both RanksFailed and another exception; RanksFailed if that is impossible.

    Making an object calls nothing of the other class, because its arguments are unknown.
    """
    if kind is None or not issubclass(kind, Exception):
        return RanksFailed
    native = _native(kind)
    own: dict[str, Any] = {
        **dict.fromkeys(_SHADOWED),
        "__new__": lambda cls, *_, **__: native.__new__(cls),
        "__str__": lambda self: self.message,
        "__setattr__": Exception.__setattr__,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
    }
    try:
        both = type(kind.__name__, (RanksFailed, kind), own)
        both("")
    except Exception:  # noqa: BLE001 - it is laid out otherwise, or refuses in its own way to be inherited from
        return RanksFailed
    return both


def _native(kind: type[BaseException]) -> Any:
    """Return the interpreter's class that an exception class derives from."""
    return next(base for base in kind.__mro__ if not base.__flags__ & _MADE_IN_PYTHON)


_LAST_LINE = 1_000_000
_ADDRESS = re.compile(r"\[[0-9a-f.:]+\](?::\d+)?")
_MOST_REPORTED = 5
"""Most failures that are shown in full."""
_OUTCOMES = {"Skipped": "_pytest.outcomes", "XFailed": "_pytest.outcomes", "SkipTest": "unittest.case"}
"""Exceptions that are not failures, with their modules; pytest claims that its own are builtins."""


def build_error(
    failures: Mapping[int, Failure],
    shown: Mapping[str, str],
    *,
    classes: Classes | None = None,
    record: Path | None,
    cause: str = "",
    write: Callable[[BaseException], str] | None = None,
) -> BaseException:
    """Build the exception to raise for the failures of ranks.

    Args:
        failures: By rank.
        shown: Paths of source files here, by their names on ranks.
        classes: Classes that were sent.
        record: Record of the run.
        cause: The verdict's reason if it is none of the failures; it begins the message, and torch's frames are hidden.
        write: Formats an exception with its traceback; None: as Python does.
    """
    failures = {rank: _hide_torch(one) for rank, one in failures.items()} if cause else failures
    own = {rank: failure for rank, failure in failures.items() if not lost_a_peer(failure)} or failures
    distinct = [(ranks, own[ranks[0]]) for ranks, _ in group_equal((rank, _form_of(own[rank])) for rank in sorted(own))]
    (ranks, failure), *others = distinct
    if all(one.kind in _OUTCOMES and one.module in ("builtins", _OUTCOMES[one.kind]) for _, one in distinct):
        kind = known_exception(_OUTCOMES[failure.kind], failure.kind)  # a skipped test, or an expected failure
        outcome = kind(failure.text) if kind is not None else RanksFailed(f"{failure.kind}: {failure.text}")
        return outcome.with_traceback(traceback_of(failure, shown))
    again = partial(rebuild_error, shown=shown, classes=classes)
    header = f"{sanitize_text(cause)}\n{name_ranks(ranks)}: ".lstrip("\n")
    error = again(failure, header=header, ranks=ranks, record=record)
    write = write or (lambda error: "".join(traceback.format_exception(error)).rstrip())
    notes, first_ranks = list[str](), {_position_of(failure): ranks}
    for also, other in others[: _MOST_REPORTED - 1]:
        rebuilt, first = again(other, header=""), first_ranks.setdefault(_position_of(other), also)
        if first is also:
            notes.append(f"{name_ranks(also)} failed otherwise:\n{write(rebuilt)}")
        else:
            notes.append(f"{name_ranks(also)} failed at the same line as {name_ranks(first)}: {rebuilt.message}")
    if remaining_ranks := sorted(rank for also, _ in others[_MOST_REPORTED - 1 :] for rank in also):
        notes.append(f"{name_ranks(remaining_ranks)} also failed, for another reason")
    if lost := sorted(failures.keys() - own.keys()):
        notes.append(f"{name_ranks(lost)} lost {'it' if len(ranks) == 1 and not others else 'them'} because of that")
    _add_notes(error, [*notes, *([f"record: {record}"] if record is not None else [])])
    return error


def _form_of(failure: Failure) -> tuple[object, ...]:
    """Return what failures of several ranks have in common if they are the same failure."""
    return *_position_of(failure), _ADDRESS.sub("", failure.text)


def _position_of(failure: Failure) -> tuple[object, ...]:
    """Return the class of a failure's exception, and where it was raised."""
    return failure.module, failure.kind, *((one.file, one.line) for one in failure.frames)


def _hide_torch(failure: Failure) -> Failure:
    frames = (one._replace(hidden=one.hidden or "-packages/torch/" in one.file) for one in failure.frames)
    return failure._replace(frames=tuple(frames))


def lost_a_peer(failure: Failure) -> bool:
    """Return whether a failure, or its cause, says that another rank was lost."""
    by_torch = failure.kind == "RuntimeError" or failure.module.startswith("torch.distributed")
    before = failure.cause or failure.context
    return (by_torch and is_loss(failure.text)) or (before is not None and lost_a_peer(before))


def rebuild_error(
    failure: Failure,
    shown: Mapping[str, str],
    *,
    header: str,
    classes: Classes | None = None,
    ranks: Sequence[int] = (),
    record: Path | None = None,
) -> RanksFailed:
    """Rebuild an exception of a rank: of its own class, if this process knows it, and of RanksFailed.

    Its `__init__` is not called, because its arguments are unknown.
    """
    kind, text = caught_as(known_exception(failure.module, failure.kind, classes)), failure.text
    if kind is RanksFailed:
        name = failure.kind if failure.module == "builtins" else f"{failure.module}.{failure.kind}"
        text = f"{name}: {text}" if text else name
    text = sanitize_text(text).lstrip("\n")  # numpy's messages begin with an empty line
    error = kind(f"{header}{text}", ranks=tuple(ranks), record=record)
    with suppress(Exception):
        _native(kind).__init__(error, error.message)  # some exceptions print their arguments
    error.shown_inside = True
    error.__traceback__ = traceback_of(failure, shown)
    _add_notes(error, [sanitize_text(note) for note in failure.notes])
    if failure.cause is not None:
        error.__cause__ = rebuild_error(failure.cause, shown, header="", classes=classes)
    elif failure.context is not None:
        error.__context__ = rebuild_error(failure.context, shown, header="", classes=classes)
    return error


def _add_notes(error: BaseException, notes: Sequence[str]) -> None:
    if notes:
        error.__notes__ = [*getattr(error, "__notes__", ()), *notes]  # type: ignore[attr-defined]


# -- tracebacks


def point_at_function(error: LabError, function: Callable[..., Any]) -> LabError:
    """Make the traceback of an error lead to a function instead of the lab's code."""
    code = function.__code__
    position = Frame(code.co_filename, code.co_firstlineno, code.co_name, code.co_firstlineno, {}, {})
    path = {code.co_filename: code.co_filename}
    if isinstance(error, RanksFailed):
        error.shown_inside = True
    return error.with_traceback(traceback_of(Failure("", "", "", (position,)), path))


class _Shown:
    """A value of a rank, with the repr that the rank sent."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return sanitize_text(self._text)


def traceback_of(failure: Failure, shown: Mapping[str, str]) -> TracebackType | None:
    """Build a traceback through the same lines, with the arguments as the rank sent them."""
    chain: TracebackType | None = None
    for position in reversed(failure.frames):
        chain = TracebackType(chain, _frame(position, _path(position.file, shown)), -1, _line(position.line))
    return chain


def _path(file: str, shown: Mapping[str, str]) -> str:
    """Return the local path of a rank's file; if it is not known, a name that no file has."""
    if (file := file.replace("\0", "")) in shown or file.startswith("<"):
        return shown.get(file, sanitize_text(file))
    real = os.path.realpath(file)
    installed = any(folder and real.startswith(os.path.join(os.path.realpath(folder), "")) for folder in sys.path)
    if file.endswith(".py") and installed and os.path.isfile(file):
        return file
    return f"<node>/{sanitize_text(file).lstrip('/')}"


def _line(number: int) -> int:
    return min(max(1, number), _LAST_LINE)


def _frame(position: Frame, path: str) -> FrameType:
    """Build a frame of a function with this name, position, and variables."""
    values = {
        name: shown
        for name, shown in {**position.arguments, **position.variables}.items()
        if name.isidentifier() and not name.startswith("__") and not keyword.iskeyword(name)
        if unicodedata.normalize("NFKC", name) == name  # as the parser normalizes names
    }
    hidden = ["__tracebackhide__"] if position.hidden else []
    arguments = [name for name in values if name in position.arguments]
    others = [name for name in (*values, *hidden) if name not in arguments]
    parameters = ", ".join([*arguments, *(["*", *others] if others else [])])
    scope: dict[str, Any] = {"__frame__": lambda: sys._getframe(1), "__name__": "rank", "__builtins__": builtins}  # noqa: SLF001
    tree = ast.parse(f"def function({parameters}): return __frame__()")
    exec(compile(ast.increment_lineno(tree, _line(position.first_line) - 1), path, "exec"), scope)
    made, name = scope["function"], sanitize_text(position.function)
    named = {"co_name": name, **({"co_qualname": name} if sys.version_info >= (3, 11) else {})}
    made.__code__ = made.__code__.replace(**named)
    frame: FrameType = made(**{name: _Shown(shown) for name, shown in values.items()}, **dict.fromkeys(hidden, True))
    return frame
