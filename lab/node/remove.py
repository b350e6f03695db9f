"""Removing what scripts left: folders however deep, files however many, whatever their modes."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str | os.PathLike[str], tell: Callable[[], object] = lambda: None) -> bool:
    """Remove a folder with everything in it, or a file; links are not followed. Returns whether nothing is there now.

    `tell` is called for everything on the way.

    Neither the stack, nor the length of a path, nor the number of open files grows with the depth.
    """
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            return True
        with suppress(OSError):  # it may be empty
            os.rmdir(path)
            return True
        top = _open(path)
        try:
            _empty(top, tell)
        finally:
            os.close(top)
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _empty(top: int, tell: Callable[[], object]) -> None:
    """Walk down and up again with one folder open, as deep as it goes."""
    # from the top folder down to the open one, each with the names of those in it that are left
    here, path = os.dup(top), [(_identity(top), _remove_inside(top, tell))]
    try:
        while True:
            if path[-1][1]:
                try:
                    inner = _open(path[-1][1][-1], here)
                except OSError:  # what cannot be opened stays, and so does everything around it
                    path[-1][1].pop()
                    continue
                os.close(here)
                here = inner
                path.append((_identity(here), _remove_inside(here, tell)))
                continue
            path.pop()
            if not path:
                return
            outer = os.open("..", _FOLDER, dir_fd=here)
            os.close(here)
            here = outer
            if _identity(here) != path[-1][0]:
                return  # somebody moves things around
            with suppress(OSError):
                os.rmdir(path[-1][1].pop(), dir_fd=here)
    finally:
        os.close(here)


def _identity(folder: int) -> tuple[int, int]:
    facts = os.fstat(folder)
    return facts.st_dev, facts.st_ino


def _remove_inside(folder: int, tell: Callable[[], object]) -> list[str]:
    """Remove every file and every empty folder; the names of the other folders, which can be opened now."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    left = []
    for name, is_folder in found:
        tell()
        with suppress(OSError):
            if not is_folder:
                os.unlink(name, dir_fd=folder)
                continue
            try:
                os.rmdir(name, dir_fd=folder)
            except OSError:
                os.chmod(name, 0o700, dir_fd=folder)
                left.append(name)
    return left


def _open(path: str | os.PathLike[str], parent: int | None = None) -> int:
    try:
        folder = os.open(path, _FOLDER, dir_fd=parent)
    except PermissionError:
        os.chmod(path, 0o700, dir_fd=parent)
        return os.open(path, _FOLDER, dir_fd=parent)
    with suppress(OSError):  # whose folder this is not, may still be allowed to change it
        os.fchmod(folder, 0o700)
    return folder
