"""Which line of the script led to a call."""

from __future__ import annotations

import json
import os
import sys
from types import CodeType, FrameType

_MOST_LINES = 16384
_PLUMBING = frozenset({"wrapper", "decorate_context", "_wrapped_call_impl", "_call_impl"})
"""Decorators and the machinery of torch.nn.Module stand between a line and what it calls."""


class Source:
    """Looks at the stack of the calling thread."""

    def __init__(self) -> None:
        self._folder = "/"
        self._hidden: tuple[str, ...] = ()
        self._files: dict[str, tuple[bool, str] | None] = {}
        self._fragments: dict[tuple[str, int, str, str], bytes] = {}

    def start(self, folder: str, hidden: list[str]) -> None:
        """Say what the script is.

        Args:
            folder: the script's folder; paths are given relative to it.
            hidden: folders that never hold the script: torch, the standard library, the lab's own code.
        """
        self._folder = os.path.join(folder, "")
        self._hidden = ("<", *(os.path.join(path, "") for path in hidden))
        self._files, self._fragments = {}, {}

    def fragment(self, depth: int = 1) -> bytes:
        """`,"at":...,"fn":...,"via":...` of the innermost frame in the script's folder, else of any that is not hidden.

        Args:
            depth: how many of the innermost frames to pass over.
        """
        frame: FrameType | None = sys._getframe(depth)
        via = found_via = ""
        found: FrameType | None = None
        while frame is not None:
            code = frame.f_code
            try:
                place = self._files[code.co_filename]
            except KeyError:
                place = self._files[code.co_filename] = self._place(code.co_filename)
            if place is not None:
                if place[0]:
                    found, found_via = frame, via
                    break
                if found is None:
                    found, found_via = frame, via
                via = _qualified_name(code)
            elif code.co_name not in _PLUMBING:
                name = _qualified_name(code)
                if "<" not in name and not name.startswith("_GeneratorContextManager"):
                    via = name
            frame = frame.f_back
        if found is None:
            return b""
        code = found.f_code
        key = (code.co_filename, found.f_lineno, code.co_name, found_via)
        known = self._fragments.get(key)
        if known is None:
            known = self._write(*key)
        return known

    def line(self, depth: int = 1) -> bytes:
        """`,"at":...` only."""
        return self.fragment(depth + 1).partition(b',"fn":')[0]

    def _place(self, path: str) -> tuple[bool, str] | None:
        """Whether a file is the script's, and how to call it; None for files that are hidden."""
        if not path or path.startswith(self._hidden):
            return None
        if not path.startswith("/"):  # relative to the working folder, which is the script's
            return True, path[2:] if path[:2] == "./" else path
        if path.startswith(self._folder):
            return True, path[len(self._folder) :]
        return False, path

    def _write(self, path: str, line: int, function: str, via: str) -> bytes:
        place = self._files[path]
        assert place is not None
        text = f',"at":{json.dumps(f"{place[1]}:{line}")},"fn":{json.dumps(function)}'
        if via:
            text += f',"via":{json.dumps(via.removeprefix("Tensor."))}'
        if len(self._fragments) >= _MOST_LINES:
            self._fragments.clear()
        fragment = self._fragments[path, line, function, via] = text.encode("utf-8", "replace")
        return fragment


def _qualified_name(code: CodeType) -> str:
    return str(getattr(code, "co_qualname", code.co_name))  # Python 3.11 and later know the class


source = Source()
"""That of this process."""
