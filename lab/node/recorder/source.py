"""Which line of the script led to a call."""

from __future__ import annotations

import json
import os
import sys
from types import CodeType, FrameType
from typing import Optional

_MOST_CODES = _MOST_LINES = 16384
_Text = tuple[bytes, bytes, Optional[CodeType]]
"""`,"at":...`; what follows it; and the code, kept alive so that no other one gets its address."""
_NOWHERE: _Text = (b"", b"", None)
_PLUMBING = frozenset({"wrapper", "decorate_context", "_wrapped_call_impl", "_call_impl"})
"""Decorators and the machinery of torch.nn.Module stand between a line and what it calls."""


class _Code:
    """What is known of a piece of code."""

    __slots__ = ("code", "name", "place")

    def __init__(self, code: CodeType, place: tuple[bool, str] | None) -> None:
        self.code = code
        """Kept alive so that no other one gets its address."""
        self.place = place
        """Whether its file is the script's, and how to call it; None for files that are hidden."""
        self.name: str | None = _qualified_name(code)
        """What to call it where it is what a line called; None where that tells a reader nothing."""
        if place is None and (
            code.co_name in _PLUMBING or "<" in self.name or self.name.startswith("_GeneratorContextManager")
        ):
            self.name = None


class Source:
    """Looks at the stack of the calling thread."""

    def __init__(self) -> None:
        self._folder = "/"
        self._hidden: tuple[str, ...] = ()
        self._codes: dict[int, _Code] = {}
        self._texts: dict[tuple[int, int, str], _Text] = {}

    def start(self, folder: str, hidden: list[str]) -> None:
        """Say what the script is.

        Args:
            folder: the script's folder; paths are given relative to it.
            hidden: folders that never hold the script: torch, the standard library, the lab's own code.
        """
        self._folder = os.path.join(folder, "")
        self._hidden = ("<", *(os.path.join(path, "") for path in hidden))
        self._codes, self._texts = {}, {}

    def fragment(self, depth: int = 1) -> bytes:
        """`,"at":...,"fn":...,"via":...` of the innermost frame in the script's folder, else of any that is not hidden.

        Args:
            depth: how many of the innermost frames to pass over.
        """
        at, rest, _ = self._look(sys._getframe(depth))
        return at + rest

    def line(self, depth: int = 1) -> bytes:
        """`,"at":...` only."""
        return self._look(sys._getframe(depth))[0]

    def _look(self, frame: FrameType | None) -> _Text:
        """What to write of the line that led to a frame."""
        codes = self._codes
        via = found_via = ""
        found: FrameType | None = None
        while frame is not None:
            code = frame.f_code
            known = codes.get(id(code))
            if known is None:
                known = self._learn(code)
            place = known.place
            if place is not None and (place[0] or found is None):
                found, found_via = frame, via
                if place[0]:
                    break
            if known.name is not None:
                via = known.name
            frame = frame.f_back
        if found is None:
            return _NOWHERE
        key = (id(found.f_code), found.f_lineno, found_via)
        return self._texts.get(key) or self._write(found.f_code, *key)

    def _learn(self, code: CodeType) -> _Code:
        if len(self._codes) >= _MOST_CODES:
            self._codes.clear()
        known = self._codes[id(code)] = _Code(code, self._place(code.co_filename))
        return known

    def _place(self, path: str) -> tuple[bool, str] | None:
        """Whether a file is the script's, and how to call it; None for files that are hidden."""
        if not path or path.startswith(self._hidden):
            return None
        if not path.startswith("/"):  # relative to the working folder, which is the script's
            return True, path[2:] if path[:2] == "./" else path
        if path.startswith(self._folder):
            return True, path[len(self._folder) :]
        return False, path

    def _write(self, code: CodeType, key: int, line: int, via: str) -> _Text:
        place = self._place(code.co_filename)
        assert place is not None
        at = f',"at":{json.dumps(f"{place[1]}:{line}")}'
        rest = f',"fn":{json.dumps(code.co_name)}'
        if via:
            rest += f',"via":{json.dumps(via.removeprefix("Tensor."))}'
        if len(self._texts) >= _MOST_LINES:
            self._texts.clear()
        text = self._texts[key, line, via] = (at.encode("utf-8", "replace"), rest.encode("utf-8", "replace"), code)
        return text


def _qualified_name(code: CodeType) -> str:
    return str(getattr(code, "co_qualname", code.co_name))  # Python 3.11 and later know the class


source = Source()
"""That of this process."""
