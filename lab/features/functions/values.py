"""Reads what a function returned; nothing that its bytes name is called, whatever they are."""

from __future__ import annotations

import enum
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

from lab.features.functions.on_node.call_values import HEAD, KIND_OF, MAPPINGS, MOST_PLAIN_BYTES


class Misread(ValueError):
    """Bytes are no value, or one that is not taken here; the message says why."""


def known_class(module: str, name: str, sent: Mapping[tuple[str, str], type | None] | None = None) -> type:
    """A class that was sent, or of a module that is imported already; nothing is imported or run to find it.

    Args:
        module: where it is.
        name: its qualified name.
        sent: those that were sent, by module and name.

    Raises:
        Misread: there is none, or one that does something when its objects end.
    """
    found: Any = (sent or {}).get((module, name))
    if found is None:
        found = sys.modules.get(module)
        for part in name.split("."):
            found = vars(found).get(part) if isinstance(found, type | ModuleType) else None
        if found is None:
            raise Misread(f"it holds a {module}.{name}, a class that is not known here: import {module} here too")
    if not isinstance(found, type) or hasattr(found, "__del__"):
        raise Misread(f"it holds a {module}.{name}, which is no class of plain data")
    return found


def read_value(data: bytes, find_class: Callable[[str, str], type] = known_class) -> Any:
    """The value that bytes stand for; nothing that they name is called.

    Args:
        data: from `write_value`, or from somebody who would like to harm.
        find_class: the class of a module and qualified name; raises Misread where there is none that may be taken.

    Raises:
        Misread: they are none.
    """
    try:
        (length,) = HEAD.unpack_from(data)
        end = HEAD.size + length
        if end > len(data):
            raise Misread("it is cut short")
        if length > MOST_PLAIN_BYTES:
            raise Misread(f"more than {MOST_PLAIN_BYTES:,} bytes besides tensors and arrays")
        reader = _Reader(memoryview(data)[end:], find_class)
        return reader.value(json.loads(data[HEAD.size : end].decode("utf-8", "surrogatepass")))
    except Misread:
        raise
    except RecursionError:
        raise Misread("it is nested too deep") from None
    except Exception as error:  # noqa: BLE001 - whatever hostile bytes make torch and numpy say
        raise Misread(f"{type(error).__name__}: {error}"[:200]) from None


class _Reader:
    def __init__(self, blobs: memoryview, find_class: Callable[[str, str], type]) -> None:
        self._blobs = blobs
        self._find_class = find_class

    def _blob(self, size: Any) -> bytearray:
        if type(size) is not int or not 0 <= size <= len(self._blobs):
            raise Misread("it is cut short")
        data, self._blobs = bytearray(self._blobs[:size]), self._blobs[size:]
        return data

    def value(self, plain: Any) -> Any:
        if not isinstance(plain, list):
            if isinstance(plain, dict):
                raise Misread("a mapping stands where none is written")
            return plain
        kind, *rest = plain
        if kind in KIND_OF:
            return self._container(KIND_OF[kind], *rest)
        method = getattr(self, f"_read_{kind}", None) if isinstance(kind, str) and kind.isalpha() else None
        if method is None:
            raise Misread(f"{kind!r:.60} is not a kind of value")
        return method(*rest)

    def _container(self, kind: type, items: Any) -> Any:
        if kind in MAPPINGS:
            pairs = [(self.value(key), self.value(item)) for key, item in items]
            return kind(pairs) if kind is not Counter else Counter(dict(pairs))
        return kind(self.value(item) for item in items)

    def _read_int(self, text: str) -> int:
        return int(text, 16)

    def _read_float(self, text: str) -> float:
        return float(text)

    def _read_complex(self, real: Any, imaginary: Any) -> complex:
        return complex(self.value(real), self.value(imaginary))

    def _read_bytes(self, size: Any) -> bytes:
        return bytes(self._blob(size))

    def _read_bytearray(self, size: Any) -> bytearray:
        return self._blob(size)

    def _read_datetime(self, text: str) -> datetime:
        return datetime.fromisoformat(text)

    def _read_date(self, text: str) -> date:
        return date.fromisoformat(text)

    def _read_timedelta(self, days: int, seconds: int, microseconds: int) -> timedelta:
        return timedelta(days, seconds, microseconds)

    def _read_path(self, text: str) -> Path:

        return Path(text)

    def _read_slice(self, *ends: Any) -> slice:
        return slice(*map(self.value, ends))

    def _read_range(self, *ends: Any) -> range:
        return range(*map(self.value, ends))

    def _read_enum(self, module: str, name: str, member: str) -> Any:
        kind = self._find_class(module, name)
        if not issubclass(kind, enum.Enum) or member not in kind.__members__:
            raise Misread(f"{module}.{name} is no enum with a member {member!r:.60}")
        return kind.__members__[member]

    def _read_named(self, module: str, name: str, items: Any) -> Any:
        kind = self._find_class(module, name)
        if not issubclass(kind, tuple) or len(getattr(kind, "_fields", ())) != len(items):
            raise Misread(f"{module}.{name} is no named tuple of {len(items)}")
        return tuple.__new__(kind, map(self.value, items))

    def _read_fields(self, module: str, name: str, found: Any) -> Any:
        kind = self._find_class(module, name)
        if not is_dataclass(kind) or not found.keys() <= {field.name for field in fields(kind)}:
            raise Misread(f"{module}.{name} is no dataclass with the fields {', '.join(map(str, found))[:100]}")
        made = object.__new__(kind)
        for field, item in found.items():
            object.__setattr__(made, field, self.value(item))
        return made

    def _read_array(self, dtype: str, shape: Any, size: Any) -> Any:
        import numpy as np

        kind = np.dtype(dtype)
        if kind.hasobject:
            raise Misread("an array of objects")
        return np.frombuffer(self._blob(size), dtype=kind).reshape(shape)

    def _read_scalar(self, dtype: str, shape: Any, size: Any) -> Any:
        return self._read_array(dtype, shape, size)[()]

    def _read_Size(self, shape: Any) -> Any:  # noqa: N802 - as torch calls it
        import torch

        return torch.Size(shape)

    def _read_dtype(self, name: str) -> Any:
        return _dtype(name.rpartition(".")[2])

    def _read_device(self, name: str) -> Any:
        import torch

        return torch.device(name)

    def _read_tensor(self, dtype: str, shape: Any, size: Any, how: Any) -> Any:
        import torch

        data = self._blob(size)
        kind = _dtype(dtype)
        flat = torch.frombuffer(data, dtype=kind) if data else torch.empty(0, dtype=kind)
        return _as_it_was(flat.reshape(shape), how)

    def _read_sparse(self, shape: Any, coalesced: Any, indices: Any, values: Any, how: Any) -> Any:
        import torch

        made = torch.sparse_coo_tensor(self.value(indices), self.value(values), shape, check_invariants=True)
        return _as_it_was(made._coalesced_(coalesced is True), how)


def _dtype(name: str) -> Any:
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise Misread(f"{name!r:.60} is no dtype")
    return found


def _as_it_was(tensor: Any, how: Any) -> Any:
    import torch

    if how["parameter"]:
        return torch.nn.Parameter(tensor, requires_grad=how["grad"] is True)
    return tensor.requires_grad_() if how["grad"] is True else tensor
