"""Reads plain data from pickles of strangers.

A pickle is a program for a small machine, and Python's own can call what it likes. This one has none of the steps that
import or call anything: it knows those by which lists, dicts, tuples, text, numbers, booleans and None are built, which
is all that PyTorch writes into flight recorder dumps. Anything else ends the reading. What it builds is never larger
than a small multiple of the file.

https://docs.python.org/3/library/pickletools.html describes the steps.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

_NAMES = {
    "c": "an import", "\x93": "an import", "R": "a call", "i": "an import", "o": "an object", "b": "an object",
    "\x81": "an object", "\x92": "an object", "P": "a reference to something outside", "Q": "a reference to something "
    "outside", "\x82": "a registered type", "\x83": "a registered type", "\x84": "a registered type",
    "\x97": "a buffer", "\x98": "a buffer",
}  # fmt: skip
"""Steps that are told by name when they are refused."""
_MARK = object()
_GET, _BYTE, _STOP = b"hK."


class NotPlain(ValueError):
    """A pickle that holds anything but plain data, or is damaged; the message is the end of a sentence."""


def read_plain(data: bytes) -> Any:
    """What a pickle holds.

    Raises:
        NotPlain: it holds anything but plain data, or is damaged.
    """
    machine = _Machine(data)
    try:
        return machine.run()
    except (IndexError, KeyError, TypeError, struct.error, UnicodeDecodeError, OverflowError):
        raise NotPlain(f"is damaged at byte {machine.place:,}") from None


class _Machine:
    """Goes through a pickle step by step."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0
        self.stack: list[Any] = []
        self.kept: dict[int, Any] = {}
        self.steps: dict[int, Callable[[], None]] = {ord(step): action for step, action in self._actions().items()}

    def _actions(self) -> dict[str, Callable[[], None]]:
        push = self.stack.append
        return {
            "\x80": lambda: self._skip(1),  # the version of the format
            "\x95": lambda: self._skip(8),  # the length of a frame
            "(": lambda: push(_MARK),
            "}": lambda: push({}),
            "]": lambda: push([]),
            ")": lambda: push(()),
            "N": lambda: push(None),
            "\x88": lambda: push(True),
            "\x89": lambda: push(False),
            "M": lambda: push(self._number("<H")),
            "J": lambda: push(self._number("<i")),
            "G": lambda: push(self._number(">d")),
            "\x8a": lambda: push(int.from_bytes(self._take(self._byte()), "little", signed=True)),
            "X": lambda: push(self._text(self._number("<I"))),
            "\x8c": lambda: push(self._text(self._byte())),
            "\x8d": lambda: push(self._text(self._number("<Q"))),
            "q": lambda: self._keep(self._byte()),
            "r": lambda: self._keep(self._number("<I")),
            "\x94": lambda: self._keep(len(self.kept)),
            "j": lambda: push(self.kept[self._number("<I")]),
            "0": self._drop,
            "a": lambda: self._extend([self._pop()]),
            "e": lambda: self._extend(self._since_mark()),
            "s": self._set_one,
            "u": lambda: self._set(self._since_mark()),
            "t": lambda: push(tuple(self._since_mark())),
            "\x85": lambda: self._tuple(1),
            "\x86": lambda: self._tuple(2),
            "\x87": lambda: self._tuple(3),
        }

    def run(self) -> Any:
        """Do all steps, and give what is on the stack at the end."""
        data, steps, push, kept, place = self.data, self.steps, self.stack.append, self.kept, 0
        while True:
            step = data[place]
            place += 1
            if step == _GET:  # half of all steps are one of these two
                push(kept[data[place]])
                place += 1
                continue
            if step == _BYTE:
                push(data[place])
                place += 1
                continue
            self.place = place
            action = steps.get(step)
            if action is not None:
                action()
                place = self.place
            elif step == _STOP:
                return self._pop()
            else:
                what = _NAMES.get(chr(step), f"the step {chr(step)!r}")
                raise NotPlain(f"holds {what} at byte {place - 1:,}, and dumps are plain data")

    def _skip(self, size: int) -> None:
        self.place += size

    def _take(self, size: int) -> bytes:
        found = self.data[self.place : self.place + size]
        if len(found) < size:
            raise IndexError(size)
        self.place += size
        return found

    def _byte(self) -> int:
        self.place += 1
        return self.data[self.place - 1]

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _text(self, size: int) -> str:
        return self._take(size).decode("utf-8", "surrogatepass")

    def _pop(self) -> Any:
        top = self.stack.pop()
        if top is _MARK:
            raise IndexError("a mark")
        return top

    def _drop(self) -> None:
        self.stack.pop()

    def _keep(self, number: int) -> None:
        if self.stack[-1] is _MARK:
            raise IndexError("a mark")
        self.kept[number] = self.stack[-1]

    def _since_mark(self) -> list[Any]:
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise IndexError("no mark")
        found = self.stack[place + 1 :]
        del self.stack[place:]
        return found

    def _tuple(self, size: int) -> None:
        self.stack.append(tuple([self._pop() for _ in range(size)][::-1]))

    def _extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            raise TypeError(target)
        target.extend(items)

    def _set_one(self) -> None:
        value = self._pop()
        self._set([self._pop(), value])

    def _set(self, items: list[Any]) -> None:
        target, keys = self.stack[-1], items[::2]
        if type(target) is not dict or len(items) % 2 or not all(type(key) in (str, int) for key in keys):
            raise TypeError(target)  # other keys are hashed by going through all that is in them
        target.update(zip(keys, items[1::2], strict=True))
