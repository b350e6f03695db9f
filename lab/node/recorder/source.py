"""Which line of the script led to a call."""

from __future__ import annotations

import json
import os
import sys
from types import CodeType, FrameType

_MOST_CODES = _MOST_LINES = 16384
Place = tuple[bytes, bytes]
"""`,"at":...`, and the same with what follows it: `,"fn":...,"via":...`."""
_NOWHERE = (b"", b"")
_PLUMBING = frozenset({"wrapper", "decorate_context", "_wrapped_call_impl", "_call_impl"})
"""Decorators and the machinery of torch.nn.Module stand between a line and what it calls."""


class _Shown:
    """A piece of code that a reader may be told of."""

    __slots__ = ("name", "scripts")

    def __init__(self, name: str, scripts: bool) -> None:
        self.name = name
        self.scripts = scripts
        """Whether its file is the script's."""


class Source:
    """Looks at the stack of the calling thread."""

    def __init__(self) -> None:
        self._folder = "/"
        self._hidden: tuple[str, ...] = ()
        self._codes: dict[int, _Shown | str | bool] = {}
        """What is known of a piece of code, by its address: of one that is hidden its name, or False where that tells a
        reader nothing."""
        self._places: dict[tuple[int, int, str], Place] = {}
        """By the address of the code, the instruction in it, and what that called."""
        self._kept: list[CodeType] = []
        """Kept alive so that no other code gets the address of one that is known."""

    def start(self, folder: str, hidden: list[str]) -> None:
        """Say what the script is.

        Args:
            folder: the script's folder; paths are given relative to it.
            hidden: folders that never hold the script: torch, the standard library, the lab's own code.
        """
        self._folder = os.path.join(folder, "")
        self._hidden = ("<", *(os.path.join(path, "") for path in hidden))
        self._forget()

    def _forget(self) -> None:
        self._codes, self._places, self._kept = {}, {}, []

    def place(self, depth: int = 1) -> Place:
        """The innermost frame in the script's folder, else the innermost one that is not hidden.

        Args:
            depth: how many of the innermost frames to pass over.
        """
        frame: FrameType | None = sys._getframe(depth)
        codes = self._codes
        via = found_via = ""
        found: FrameType | None = None
        while frame is not None:
            code = frame.f_code
            known = codes.get(id(code))
            if known is None:
                known = self._learn(code)
            if known is not False:
                if known.__class__ is str:
                    via = known
                elif known.scripts:  # type: ignore[union-attr]
                    return self._places.get((id(code), frame.f_lasti, via)) or self._describe(frame, via)
                else:
                    if found is None:
                        found, found_via = frame, via
                    via = known.name  # type: ignore[union-attr]
            frame = frame.f_back
        if found is None:
            return _NOWHERE
        return self._places.get((id(found.f_code), found.f_lasti, found_via)) or self._describe(found, found_via)

    def _learn(self, code: CodeType) -> _Shown | str | bool:
        if len(self._kept) >= _MOST_CODES:
            self._forget()
        self._kept.append(code)
        place = self._place(code.co_filename)
        name = _qualified_name(code)
        known: _Shown | str | bool
        if place is not None:
            known = _Shown(name, place[0])
        else:
            tells = code.co_name not in _PLUMBING and "<" not in name
            known = name if tells and not name.startswith("_GeneratorContextManager") else False
        self._codes[id(code)] = known
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

    def _describe(self, frame: FrameType, via: str) -> Place:
        code = frame.f_code
        place = self._place(code.co_filename)
        assert place is not None
        at = f',"at":{json.dumps(f"{place[1]}:{frame.f_lineno}")}'
        rest = f',"fn":{json.dumps(code.co_name)}'
        if via:
            rest += f',"via":{json.dumps(via.removeprefix("Tensor."))}'
        if len(self._places) >= _MOST_LINES:
            self._places.clear()
        described = (at.encode("utf-8", "replace"), (at + rest).encode("utf-8", "replace"))
        self._places[id(code), frame.f_lasti, via] = described
        return described


def _qualified_name(code: CodeType) -> str:
    return str(getattr(code, "co_qualname", code.co_name))  # Python 3.11 and later know the class


source = Source()
"""That of this process."""
