"""Open and remove files safely in folders where a script may have put links, pipes, or devices."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
"""Open a file for reading, but neither follow a link nor wait for a pipe."""
NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""Open a file that does not exist for writing; a link counts as existing."""
KINDS = {
    stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFREG: "a file",
    stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip
"""Descriptions of paths by the format of their mode."""


def home_folder() -> str:
    """Return the home folder; empty if the user has none, so that paths below it begin at `/`."""
    return os.path.expanduser("~").lstrip("~")


class NotAFile(Exception):
    """A path is no regular file; the text is the end of a sentence that begins with the path."""


def describe_kind(mode: int) -> str:
    """Return what a path is, such as `a pipe`; empty for a regular file."""
    return "" if stat.S_ISREG(mode) else KINDS[stat.S_IFMT(mode)]


@contextmanager
def closing_descriptor(descriptor: int) -> Iterator[int]:
    """Yield an open descriptor, and close it at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_folder(top: str, path: str = "") -> int:
    """Open a folder below another one, or that one; no part of the path below it may be a link.

    Raises:
        OSError: it does not exist, is a link, or cannot be read.
    """
    here = os.open(top, _FOLDER)
    for part in path.split("/") if path else ():
        with closing_descriptor(here):
            here = os.open(part, _FOLDER, dir_fd=here)
    return here


def open_regular_file(top: str, path: str) -> int:
    """Open a regular file below a folder for reading. Nothing else is opened, so this never blocks.

    Raises:
        NotAFile: it is something else.
        OSError: it does not exist, or cannot be read.
    """
    folders, _, name = path.rpartition("/")
    with closing_descriptor(open_folder(top, folders)) as folder:
        if kind := describe_kind(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise NotAFile(f"is {kind}, not a file")
        descriptor = os.open(name, READ_FLAGS, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # it was replaced in between
        os.close(descriptor)
        raise NotAFile("is not a file")
    return descriptor


def walk_tree(
    top: str, enter: Callable[[str, os.stat_result], bool], failed: Callable[[str, OSError], object] = lambda *_: None
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path and the status of everything below a folder; do not follow links.

    Args:
        top: the folder.
        enter: returns whether to enter a folder below it.
        failed: called with a folder that cannot be read, or vanishes meanwhile.
    """
    waiting = [""]
    for below in waiting:
        folder = os.path.join(top, below) if below else top
        try:
            # Step by step: the whole path may exceed the kernel's limit.
            with closing_descriptor(open_folder(top, below)) as opened, os.scandir(opened) as entries:
                for entry in entries:
                    path, facts = os.path.join(folder, entry.name), entry.stat(follow_symlinks=False)
                    yield path, facts
                    if stat.S_ISDIR(facts.st_mode) and enter(path, facts):
                        waiting.append(f"{below}/{entry.name}" if below else entry.name)
        except OSError as error:
            failed(folder, error)


def write_all(file: int, data: bytes) -> None:
    """Write all of the data to an open file, which may accept only a part of it at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def escape_path(path: str) -> str:
    r"""Return a path as text for messages: bytes that are not UTF-8 become `\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def remove_attributes(path: str, prefix: str = "") -> None:
    """Remove the extended attributes of a folder whose names begin so; not all file systems have any."""
    with suppress(OSError):
        for name in os.listxattr(path, follow_symlinks=False):
            if name.startswith(prefix):
                os.removexattr(path, name, follow_symlinks=False)


def remove_tree(path: str | os.PathLike[str], on_entry: Callable[[], object] = lambda: None) -> bool:
    """Remove a file, or a folder with everything in it; do not follow links. Return whether the path is gone.

    `on_entry` is called for each removed entry. Neither the stack, nor the length of a path, nor the number of open
    files grows with the depth.
    """
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            return True
        with suppress(OSError):  # it may be empty
            os.rmdir(path)
            return True
        with closing_descriptor(_open(path)) as top:
            _empty(top, on_entry)
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _empty(top: int, on_entry: Callable[[], object]) -> None:
    """Empty a folder. Its subfolders' contents are moved up into it, so that no deep path is ever opened."""
    waiting = _remove_inside(top, on_entry)
    for name in waiting:
        with suppress(OSError):  # what cannot be opened or moved stays, with its parents
            with closing_descriptor(_open(name, top)) as inner:
                for deeper in _remove_inside(inner, on_entry):
                    moved = f".{os.urandom(8).hex()}"
                    os.rename(deeper, moved, src_dir_fd=inner, dst_dir_fd=top)
                    waiting.append(moved)
            os.rmdir(name, dir_fd=top)


def _remove_inside(folder: int, on_entry: Callable[[], object]) -> list[str]:
    """Remove every file and every empty folder; return the names of the other folders, which can be opened now."""
    with os.scandir(folder) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    left = []
    for name, is_folder in listed:
        on_entry()
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
    with suppress(OSError):  # without ownership it may still be writable
        os.fchmod(folder, 0o700)
    return folder
