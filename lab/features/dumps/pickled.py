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

_NAMES = {
    "c": "an import", "\x93": "an import", "R": "a call", "i": "an import", "o": "an object", "b": "an object",
    "\x81": "an object", "\x92": "an object", "P": "a reference to something outside", "Q": "a reference to something "
    "outside", "\x82": "a registered type", "\x83": "a registered type", "\x84": "a registered type",
    "\x97": "a buffer", "\x98": "a buffer",
}  # fmt: skip
"""Steps that the refusal names."""
_MOST_MEMORY = 512 << 20
"""Bytes of all containers; numbers and text take at most twelve times the bytes of the file besides."""
_CONTAINER, _ITEM, _KEPT = 64, 48, 96
"""Bytes of an empty container or a mark, of an item of a dict, and of an entry of the memo, in CPython 3.10 to 3.14."""

_LONGEST_KEY = 32
"""Bits of a whole number that is a key."""


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
        data, place, memory = self.data, 0, _MOST_MEMORY
        stack: list[Any] = []
        marked: list[list[Any]] = []
        kept: dict[int, Any] = {}
        push, number = stack.append, int.from_bytes
        unpack_text, unpack_real, unpack_int = (struct.Struct(form).unpack_from for form in ("<I", ">d", "<i"))
        size = len(data)
        while True:
            step = data[place]
            place += 1
            if step == 0x68:  # h: what was kept under a number of one byte
                push(kept[data[place]])
                place += 1
            elif step == 0x4B:  # K: a byte
                push(data[place])
                place += 1
            elif step == 0x71:  # q: keep what is on top, under a number of one byte
                kept[data[place]] = stack[-1]
                place += 1
            elif step == 0x6A:  # j: what was kept
                push(kept[unpack_text(data, place)[0]])
                place += 4
            elif step == 0x72:  # r: keep what is on top
                kept[unpack_text(data, place)[0]] = stack[-1]
                place += 4
                memory -= _KEPT
            elif step == 0x8A:  # a whole number of so many bytes
                end = place + 1 + data[place]
                if end > size:
                    raise IndexError(end)
                push(number(data[place + 1 : end], "little", signed=True))
                place = end
            elif step == 0x5D:  # ]: an empty list
                push([])
                memory -= _CONTAINER
            elif step == 0x28:  # (: a mark
                marked.append(stack)
                stack = []
                push = stack.append
                memory -= _CONTAINER
            elif step == 0x65:  # e: append what stands behind the mark to the list before it
                items, stack = stack, marked.pop()
                push = stack.append
                _list(stack[-1]).extend(items)
            elif step == 0x75:  # u: put keys and values behind the mark into the dict before it
                items, stack = stack, marked.pop()
                push = stack.append
                memory -= _ITEM * len(items)
                _set(stack[-1], items)
            elif step in (0x58, 0x8C, 0x8D):  # X, and shorter and longer: text
                if step == 0x58:
                    begin = place + 4
                    end = begin + unpack_text(data, place)[0]
                elif step == 0x8C:
                    begin = place + 1
                    end = begin + data[place]
                else:
                    begin = place + 8
                    end = begin + number(data[place:begin], "little")
                if end > size:
                    raise IndexError(end)
                self.place = begin
                push(data[begin:end].decode("utf-8", "surrogatepass"))
                place = end
            elif step == 0x7D:  # }: an empty dict
                push({})
                memory -= _CONTAINER
                self.place = place
            elif step == 0x4E:  # N
                push(None)
            elif step == 0x94:  # keep what is on top, under the next number
                kept[len(kept)] = stack[-1]
                memory -= _KEPT
            elif step in (0x85, 0x86, 0x87):  # a tuple of the last one, two or three
                first = -(step - 0x84)
                items = stack[first:]
                if len(items) != -first:
                    raise IndexError(first)
                stack[first:] = [tuple(items)]
                memory -= _CONTAINER
            elif step == 0x74:  # t: a tuple of what stands behind the mark
                items, stack = stack, marked.pop()
                push = stack.append
                push(tuple(items))
            elif step == 0x4D:  # M: a whole number of two bytes
                push(data[place] | data[place + 1] << 8)
                place += 2
            elif step == 0x4A:  # J: of four
                push(unpack_int(data, place)[0])
                place += 4
            elif step == 0x88:
                push(True)
            elif step == 0x89:
                push(False)
            elif step == 0x47:  # G: a number with a fraction
                push(unpack_real(data, place)[0])
                place += 8
            elif step == 0x29:  # ): an empty tuple
                push(())
            elif step == 0x73:  # s: put a key and its value into the dict before them
                value = stack.pop()
                key = stack.pop()
                memory -= _ITEM * 2
                _set(stack[-1], [key, value])
            elif step == 0x61:  # a: append to the list before
                item = stack.pop()
                _list(stack[-1]).append(item)
            elif step == 0x80:  # the version of the format
                place += 1
            elif step == 0x95:  # the length of a frame
                place += 8
            elif step == 0x30:  # 0: drop what is on top
                stack.pop()
            elif step == 0x2E:  # .: the end
                return stack.pop()
            else:
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
