"""What scripts leave in a container outside of the folder that they were given."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable

from .remove import remove_tree

_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")


def listing() -> set[str]:
    """Paths of everything in the folders that anybody may write to."""
    return {os.path.join(folder, name) for folder in _FOLDERS if os.path.isdir(folder) for name in os.listdir(folder)}


def remove(paths: Iterable[str], tell: Callable[[], object]) -> None:
    """Remove files and whole folders; what cannot be removed is told on standard error."""
    for path in paths:
        if not remove_tree(path, tell):
            print(f"cannot remove {path}", file=sys.stderr)
