"""Read plain data from untrusted pickles.

A pickle is a program for a small machine, which can call anything. Here Python's own implementation in Python keeps
only opcodes that build lists, dicts, tuples, text, numbers, booleans, and None. PyTorch writes nothing else into flight
recorder dumps. No remaining opcode imports or calls anything. Any other opcode ends the reading. So does data that
needs more memory than `_MOST_MEMORY`, however small the file is.

https://docs.python.org/3/library/pickletools.html describes the opcodes.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from lab.words import format_limit

_MOST_MEMORY = 512 << 20
"""Bytes of all containers; numbers and text need at most twelve times the bytes of the file in addition."""
_CONTAINER, _ITEM, _KEPT = 64, 48, 96
"""Bytes of an empty container or a mark, of an item of a dict, and of an entry of the memo, in CPython 3.10 to 3.14."""
_LONGEST_KEY = 32
"""Bits of an integer that is a key."""
_PLAIN = b"\x80\x95KMJG\x8aX\x8c\x8dN\x88\x89hjae0."
"""Opcodes for the version and frames, numbers, text, constants, the memo, lists, and the end."""
_COSTS = {**dict.fromkeys(b"]}()t\x85\x86\x87", _CONTAINER), **dict.fromkeys(b"qr\x94", _KEPT)}
"""Opcodes that create a container or store into the memo, with the bytes that they need."""
_DAMAGE = (
    ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, TypeError, ValueError, struct.error,
    pickle.UnpicklingError,
)  # fmt: skip


_PYTHONS: Any = pickle._Unpickler  # noqa: SLF001 - opcodes of the C implementation cannot be removed


class NotPlain(ValueError):
    """A pickle that holds anything but plain data, or is damaged; the message is the end of a sentence."""


def read_plain(data: bytes) -> Any:
    """Return the data in a pickle.

    Raises:
        NotPlain: It holds anything but plain data, is damaged, or needs too much memory.
    """
    file = io.BytesIO(data)
    machine: Any = _PYTHONS(file)
    machine.dispatch = _Steps()
    try:
        return machine.load()
    except NotPlain:
        raise
    except _DAMAGE:
        raise NotPlain(f"is damaged before byte {file.tell():,}") from None


class _Steps(dict[int, Callable[[Any], None]]):
    """Opcode -> its handler; counts the memory that all of them need."""

    def __init__(self) -> None:
        super().__init__({step: _PYTHONS.dispatch[step] for step in _PLAIN})
        self.left = _MOST_MEMORY
        for step, cost in _COSTS.items():
            self[step] = partial(self._charged, _PYTHONS.dispatch[step], cost)
        self[ord("s")] = self._set_one
        self[ord("u")] = lambda machine: self._set(machine, machine.pop_mark())

    def __missing__(self, step: int) -> Callable[[Any], None]:
        name = next((op.name for op in pickletools.opcodes if op.code == chr(step)), repr(chr(step)))
        raise NotPlain(f"has the pickle opcode {name}; allowed: plain data")

    def _spend(self, size_bytes: int) -> None:
        self.left -= size_bytes
        if self.left < 0:
            raise NotPlain(f"needs more than {format_limit(_MOST_MEMORY)} of memory, which no dump does")

    def _charged(self, step: Callable[[Any], None], cost: int, machine: Any) -> None:
        self._spend(cost)
        step(machine)

    def _set_one(self, machine: Any) -> None:
        value, key = machine.stack.pop(), machine.stack.pop()
        self._set(machine, [key, value])

    def _set(self, machine: Any, items: list[Any]) -> None:
        """Put keys and values into the dict on top of the stack."""
        self._spend(_ITEM * len(items))
        target, keys = machine.stack[-1], items[::2]
        kinds = {*map(type, keys)}
        if type(target) is not dict or len(items) % 2 or not kinds <= {str, int}:
            raise TypeError(target)  # hashing other keys can visit all their contents
        if int in kinds and any(type(key) is int and key.bit_length() > _LONGEST_KEY for key in keys):
            raise TypeError(target)  # multiples of sys.hash_info.modulus share one hash
        target.update(zip(keys, items[1::2], strict=True))
