"""Files below a folder in which a script may have put links, pipes or devices: opened safely, or refused with a reason.

Each part of a path is opened from the folder before it, so that no link leads anywhere else and no path is too long.
"""

from __future__ import annotations

import os
import stat

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class NotAFile(Exception):
    """There is no regular file of this path; the text is the end of a sentence that begins with the path."""


def describe_kind(mode: int) -> str:
    """What a path is that is no regular file, such as `a pipe`; empty for a regular file."""
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "")


def open_folder(top: str, path: str = "") -> int:
    """Open a folder below another one, or that one; no part of the path below it may be a link.

    Raises:
        OSError: there is none, it is a link, or it cannot be read.
    """
    here = os.open(top, _FOLDER)
    for part in path.split("/") if path else ():
        try:
            inner = os.open(part, _FOLDER, dir_fd=here)
        finally:
            os.close(here)
        here = inner
    return here


def open_regular_file(top: str, path: str) -> int:
    """Open a regular file below a folder for reading; nothing else is opened, so this never waits.

    Raises:
        NotAFile: it is something else.
        OSError: there is none, or it cannot be read.
    """
    folders, _, name = path.rpartition("/")
    folder = open_folder(top, folders)
    try:
        kind = describe_kind(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        if kind:
            raise NotAFile(f"is {kind}, not a file")
        descriptor = os.open(name, _FILE, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # it was replaced in between
        os.close(descriptor)
        raise NotAFile("is not a file")
    return descriptor


def printable(path: str) -> str:
    r"""A path as text that any message can hold: bytes that are no text are written as `\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
