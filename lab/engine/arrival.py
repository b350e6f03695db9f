"""Files and folders that arrive on this machine: the only module that decides what they may be.

What arrives is plain files and folders of the caller: files of mode 0644, or 0755 where their owner may execute them,
folders of mode 0755, less the umask. Owners, set-user-ID bits, ACLs, extended attributes and capabilities do not
arrive, nor do links, devices, pipes and sockets. Blocks of zeros become holes. Something arrives whole or not at all.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from lab.errors import UsageError
from lab.words import format_limit

LIMIT_BYTES = 1 << 30
"""What one copy may write, unless somebody asks for more."""
MORE = "copy more with --max-size, such as --max-size 4GiB"
_SPARE_BYTES = 64 << 20
"""Of a disk, these stay free, or a twentieth of a small one."""
_HOLE_BYTES = 1 << 16
_ZEROS = bytes(_HOLE_BYTES)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def file_mode(executable: bool) -> int:
    """The mode of a file that arrives, before the umask."""
    return 0o755 if executable else 0o644


class NewFile:
    """A file that is written here, with holes in the place of zeros; it is new, and no link is followed.

    Args:
        path: where it is.
        executable: whether its owner may execute it.

    Raises:
        OSError: it is there already, or cannot be made.
    """

    def __init__(self, path: Path, *, executable: bool = False) -> None:
        self._descriptor = os.open(path, _NEW, file_mode(executable))
        self.size_bytes = 0
        """How long it is."""
        self.written_bytes = 0
        """What of it is no hole."""

    def write(self, data: bytes) -> None:
        """Append to it."""
        for start in range(0, len(data), _HOLE_BYTES):
            part = data[start : start + _HOLE_BYTES]
            if part == _ZEROS[: len(part)]:
                self.size_bytes += len(part)
                continue
            view = memoryview(part)
            while view:
                written = os.pwrite(self._descriptor, view, self.size_bytes)
                self.size_bytes += written
                self.written_bytes += written
                view = view[written:]

    def close(self) -> None:
        """Close it; a hole at its end counts from here on.

        Raises:
            OSError: it cannot be written.
        """
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            try:
                os.ftruncate(descriptor, self.size_bytes)
            finally:
                os.close(descriptor)

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class WriteLimit(NamedTuple):
    """How much may be written."""

    most_bytes: int
    of_disk: bool
    """Whether the disk has no more."""

    @classmethod
    def in_folder(cls, folder: Path, asked: int | None) -> WriteLimit:
        """As much as was asked for, or `LIMIT_BYTES`; never more than the disk has."""
        disk = os.statvfs(folder)
        free = max(0, disk.f_bavail * disk.f_frsize - min(_SPARE_BYTES, disk.f_blocks * disk.f_frsize // 20))
        wanted = LIMIT_BYTES if asked is None else asked
        return cls(min(wanted, free), free < wanted)

    def error(self) -> UsageError:
        """Return the error that says that there is more."""
        if self.of_disk:
            return UsageError(f"it holds more than the {format_limit(self.most_bytes)} that this disk has free")
        return UsageError(f"it holds more than {format_limit(self.most_bytes)}", MORE)


@contextmanager
def arriving(target: Path) -> Iterator[Path]:
    """A path in a new folder beside the target, to write a file or folder to; at the end of the block it is moved.

    A link in the place of the target is followed. A folder that is there takes what is new; files in it of the same
    names are replaced, links in it are not followed.

    Raises:
        UsageError: it cannot be written, or something else is in the way; nothing of it is here then.
    """
    import shutil  # these take long to import, and every run imports this module
    import tempfile

    try:
        target = Path(os.path.realpath(target)) if target.is_symlink() else Path(os.path.abspath(target))
        _refuse_special(target)
        prefix = f".{os.fsdecode(os.fsencode(target.name)[:60])}."
        staged = Path(tempfile.mkdtemp(prefix=prefix, suffix=".part", dir=target.parent))
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from error
    try:
        yield staged / "new"
        _put_in_place(staged / "new", target)
    except OSError as error:
        where = str(error.filename or target).replace(f"{staged}/new", str(target))
        raise UsageError(f"cannot write {where}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _refuse_special(target: Path) -> None:
    with suppress(FileNotFoundError):
        mode = os.lstat(target).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise UsageError(f"cannot write {target}: it is neither a file nor a folder")


def _put_in_place(staged: Path, target: Path) -> None:
    """Move what was unpacked to its place; what is in the way is found before anything is moved."""
    for move in (_refuse_clash, os.replace):
        _merge(staged, target, move)


def _merge(staged: Path, target: Path, move: Callable[[Path, Path], object]) -> None:
    there = _mode_of(target)
    if not stat.S_ISDIR(_mode_of(staged)) or not stat.S_ISDIR(there):
        move(staged, target)
        return
    for name in os.listdir(staged):
        _merge(staged / name, target / name, move)


def _mode_of(path: Path) -> int:
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return 0


def _refuse_clash(staged: Path, target: Path) -> None:
    """Refuse a file in the place of a folder, a folder in the place of anything else, and special files."""
    there, is_folder = _mode_of(target), stat.S_ISDIR(_mode_of(staged))
    if not there or ((stat.S_ISREG(there) or stat.S_ISLNK(there)) and not is_folder):
        return
    raise UsageError(f"cannot write {target}: something else of that name is there")
