"""Which line of the script led to a call. For the Python recorder."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

_OWN = os.path.join(os.path.dirname(__file__), "")
_PLUMBING = frozenset({"wrapper", "decorate_context", "_wrapped_call_impl", "_call_impl"})
"""Decorators and the machinery of torch.nn.Module stand between a line and what it calls."""


class Source:
    """Looks at the stack of the calling thread."""

    def __init__(self) -> None:
        self.folder = "/"
        self.hidden: tuple[str, ...] = ()
        """Beginnings of paths that are never the script's."""

    def start(self, folder: str, hidden: list[str]) -> None:
        """Say which folder is the script's (paths are given relative to it), and which ones never hold it."""
        self.folder = os.path.join(folder, "")
        self.hidden = ("<", *(os.path.join(path, "") for path in hidden))

    def place(self) -> dict[str, str]:
        """The innermost line in the script's folder, else the innermost one that is not hidden: `at`, `fn`, `via`."""
        frame: FrameType | None = sys._getframe(1)
        found: dict[str, str] = {}
        via = ""
        while frame is not None:
            code, path = frame.f_code, frame.f_code.co_filename
            if not path.startswith(_OWN):
                if path and not path.startswith(self.hidden):
                    in_script = path[0] != "/" or path.startswith(self.folder)  # the working folder is the script's
                    if in_script or not found:
                        shown = path.removeprefix(self.folder).removeprefix("./")
                        found = {"at": f"{shown}:{frame.f_lineno}", "fn": code.co_name, **({"via": via} if via else {})}
                    if in_script:
                        break
                via = _readable_name(code) or via
            frame = frame.f_back
        return found


def _readable_name(code: CodeType) -> str:
    """Empty for a function whose name tells a reader nothing."""
    name = str(getattr(code, "co_qualname", code.co_name))  # Python 3.11 and later know the class
    if code.co_name in _PLUMBING or "<" in name or name.startswith("_GeneratorContextManager"):
        return ""
    return name.removeprefix("Tensor.")


source = Source()
"""That of this process."""
