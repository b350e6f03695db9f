"""Reads plain data from pickles of strangers.

A pickle is a program for a small machine, and Python's own machine can call what it likes. This one has no step that
imports or calls anything. It knows the steps that build lists, dicts, tuples, text, numbers, booleans and None, which
is all that PyTorch writes into flight recorder dumps. Any other step ends the reading. So does data that needs more
memory than `_MOST_MEMORY`, however small the file is.

https://docs.python.org/3/library/pickletools.html describes the steps.
"""

from __future__ import annotations

import struct
from typing import Any

from lab.words import format_limit

_REFUSED = {
    "an import": "ci\x93",
    "a call": "R",
    "an object": "ob\x81\x92",
    "a reference to something outside": "PQ",
    "a registered type": "\x82\x83\x84",
    "a buffer": "\x97\x98",
}
_NAMES = {step: name for name, steps in _REFUSED.items() for step in steps}
"""Steps that the refusal names."""
_MOST_MEMORY = 512 << 20
"""Bytes of all containers; numbers and text take at most twelve times the bytes of the file besides."""
_CONTAINER, _ITEM, _KEPT = 64, 48, 96
"""Bytes of an empty container or a mark, of an item of a dict, and of an entry of the memo, in CPython 3.10 to 3.14."""

_LONGEST_KEY = 32
"""Bits of a whole number that is a key."""
_ARGUMENTS = {
    ord(step): struct.Struct(form)
    for form, steps in {"B": "Khq\x80\x8a\x8c", "<H": "M", "<I": "jrX", "<i": "J", "<Q": "\x8d\x95", ">d": "G"}.items()
    for step in steps
}
"""By step: the number that follows it. It is pushed, or tells what is kept, or how long something is."""
_NUMBERS, _GET, _PUT, _TEXT, _BEHIND_MARK = b"KMJG", b"hj", b"qr", b"X\x8c\x8d", b"eut"
_HEADERS = b"\x80\x95"
"""The version of the format, and the length of a frame."""
_CONSTANTS = {0x4E: None, 0x88: True, 0x89: False, 0x29: ()}
_NEW = {0x5D: list, 0x7D: dict}


class NotPlain(ValueError):
    """A pickle that holds anything but plain data, or is damaged; the message is the end of a sentence."""


def read_plain(data: bytes) -> Any:
    """What a pickle holds.

    Raises:
        NotPlain: it holds anything but plain data, is damaged, or needs too much memory.
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
        """Of the step after the latest container: near enough for a message."""

    def run(self) -> Any:  # one loop with locals: a call for each step takes twice as long
        """Do all steps, and return what is on the stack at the end."""
        data, size, place, memory = self.data, len(self.data), 0, _MOST_MEMORY
        stack: list[Any] = []
        marked: list[list[Any]] = []
        kept: dict[int, Any] = {}
        argument_of, number = _ARGUMENTS.get, 0
        while True:
            step = data[place]
            place += 1
            argument = argument_of(step)
            if argument is not None:
                (number,) = argument.unpack_from(data, place)
                place += argument.size
            if step in _GET:
                stack.append(kept[number])
            elif step in _NUMBERS:
                stack.append(number)
            elif step in _PUT:
                kept[number] = stack[-1]
                memory -= _KEPT
            elif step in _TEXT or step == 0x8A:  # 8A: a whole number of so many bytes
                self.place, end = place, place + number
                if end > size:
                    raise IndexError(end)
                body = data[place:end]
                place = end
                stack.append(
                    int.from_bytes(body, "little", signed=True)
                    if step == 0x8A
                    else body.decode("utf-8", "surrogatepass")
                )
            elif step in _NEW:
                stack.append(_NEW[step]())
                memory -= _CONTAINER
                self.place = place
            elif step == 0x28:  # (: a mark
                marked.append(stack)
                stack = []
                memory -= _CONTAINER
            elif step in _BEHIND_MARK:  # what stands behind the mark is appended, set, or a tuple
                items, stack = stack, marked.pop()
                if step == 0x65:
                    _list(stack[-1]).extend(items)
                elif step == 0x75:
                    memory -= _ITEM * len(items)
                    _set(stack[-1], items)
                else:
                    stack.append(tuple(items))
            elif step in _CONSTANTS:
                stack.append(_CONSTANTS[step])
            elif step == 0x94:  # keep what is on top, under the next number
                kept[len(kept)] = stack[-1]
                memory -= _KEPT
            elif 0x85 <= step <= 0x87:  # a tuple of the last one, two or three
                items = [stack.pop() for _ in range(step - 0x84)]
                stack.append((*reversed(items),))
                memory -= _CONTAINER
            elif step == 0x73:  # s: put a key and its value into the dict before them
                value, key = stack.pop(), stack.pop()
                memory -= _ITEM * 2
                _set(stack[-1], [key, value])
            elif step == 0x61:  # a: append to the list before
                item = stack.pop()
                _list(stack[-1]).append(item)
            elif step == 0x30:  # 0: drop what is on top
                stack.pop()
            elif step == 0x2E:  # .: the end
                return stack.pop()
            elif step not in _HEADERS:
                what = _NAMES.get(chr(step), f"the step {chr(step)!r}")
                raise NotPlain(f"holds {what} at byte {place - 1:,}, and dumps are plain data")
            if memory < 0:
                raise NotPlain(f"needs more than {format_limit(_MOST_MEMORY)} of memory, which no dump does")


def _list(target: Any) -> list[Any]:
    if type(target) is not list:
        raise TypeError(target)
    return target


def _set(target: Any, items: list[Any]) -> None:
    keys = items[::2]
    kinds = {*map(type, keys)}
    if type(target) is not dict or len(items) % 2 or not kinds <= {str, int}:
        raise TypeError(target)  # other keys are hashed by going through all that is in them
    if int in kinds and any(type(key) is int and key.bit_length() > _LONGEST_KEY for key in keys):
        raise TypeError(target)  # multiples of sys.hash_info.modulus share one hash
    target.update(zip(keys, items[1::2], strict=True))
