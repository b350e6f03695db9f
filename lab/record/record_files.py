"""Open the files of a record; the only module that does.

A record may come from another user, so nothing in it is trusted. The folder of the record is opened once, and every
folder below it from the one above, without following a symbolic link. Only a regular file within a limit is opened.
Everything else is refused with a `RecordError` that names it. A missing file is a `FileNotFoundError`, a folder in its
place an `IsADirectoryError`: readers take both for damage, and show what else there is.

The folder of the record itself may be reached by a link: the user names it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from lab.errors import RecordError
from lab.node.files import KINDS, NEW_FLAGS, READ_FLAGS
from lab.record.layout import ATTEMPTS, LOCK, LOGS, MOST_SHOWN_RANKS
from lab.words import clip_middle, format_limit

_MIB = 1 << 20
MOST_JSON_BYTES = 256 * _MIB
"""Of a document such as `result.json`, which contains the notes of all ranks; one rank notes at most 64 MiB."""
MOST_JSON_VALUES = 4_000_000
"""Of one document or line: each value takes up to 100 bytes of memory, and only 3 bytes of the file."""
MOST_TEXT_BYTES = 16 * _MIB
"""Of a scenario, which has at most 1 MiB before the lab resolves it, and of the part of a script that is read."""
MOST_LOG_BYTES = 1024 * _MIB
"""Of a log that is read completely; by default a rank prints at most 256 MiB."""
MOST_LINES_BYTES = 1024 * _MIB
"""Of the events, of the index of the output, and of a trace, whose recorder stops at 256 MiB."""
LONGEST_LINE_BYTES = 64 * _MIB
"""Of events and traces; a longer line is damage."""
_FEW_BYTES = 1 << 16
"""A shorter text cannot contain too many values."""
_LONGEST_SHOWN = 200
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_APPEND = READ_FLAGS | os.O_WRONLY | os.O_APPEND | os.O_CREAT
_CHUNK_BYTES = 1 << 20
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_NON_FINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


def open_file(folder: Path, name: str, most_bytes: int | None = None, *, append: bool = False) -> BinaryIO:
    """Open a regular file of a record, to read or append; other kinds of files are not even opened.

    Args:
        folder: the record, or that of an earlier attempt.
        name: the path of the file below it, with `/` between its parts.
        most_bytes: refuse a larger file; None: the caller reads a bounded part of it.
        append: whether to append to it; a missing file and its folder are created.

    Raises:
        RecordError: it is no regular file, it is too large, or a part of its path is no folder.
        FileNotFoundError: there is no such file.
        OSError: it cannot be read.
    """
    with _opened_parent(folder, name, make_folders=append) as (parent, last):

        def refuse_special() -> None:
            with suppress(FileNotFoundError):
                _refuse_special(os.stat(last, dir_fd=parent, follow_symlinks=False), folder, name)

        refuse_special()
        try:
            file = os.open(last, _APPEND if append else READ_FLAGS, 0o666, dir_fd=parent)
        except OSError as error:  # another process has replaced it since
            refuse_special()
            raise error
    try:
        about = os.fstat(file)
        _refuse_special(about, folder, name)
        if most_bytes is not None and about.st_size > most_bytes:
            raise _too_large(folder, name, most_bytes)
    except BaseException:
        os.close(file)
        raise
    return open(file, "ab", buffering=0) if append else open(file, "rb")


def open_log(path: Path, most_bytes: int | None = None) -> BinaryIO:
    """Open a log by its path, in a record or elsewhere; raises as `open_file`."""
    folder, name = (path.parent.parent, f"{LOGS}/{path.name}") if path.parent.name == LOGS else (path.parent, path.name)
    return open_file(folder, name, most_bytes)


def read_tail(log: Path | None, most_bytes: int) -> list[str]:
    """Return the lines at the end of a log, the first one whole if there are several; none without a log."""
    text, size = "", 0
    with suppress(OSError):
        if log is not None:
            with open_log(log) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - most_bytes))
                text = file.read().decode("utf-8", "replace").rstrip()
    lines = text.split("\n") if text else []
    return lines[1:] if size > most_bytes and len(lines) > 1 else lines


def read_file(folder: Path, name: str, most_bytes: int) -> bytes:
    """Return the content of a file of a record; raises as `open_file`."""
    with open_file(folder, name, most_bytes) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:  # the file has grown since
        raise _too_large(folder, name, most_bytes)
    return data


def read_beginning(folder: Path, name: str, most_bytes: int = MOST_TEXT_BYTES) -> str:
    """Return the text at the beginning of a file of a record; raises as `open_file`."""
    with open_file(folder, name) as file:
        return file.read(most_bytes).decode("utf-8", "replace")


def read_json(folder: Path, name: str) -> Any:
    """Parse the JSON document in a file of a record; numbers that JSON lacks become text.

    Raises:
        RecordError: the file is refused, or contains too many values.
        OSError: it is missing, or cannot be read.
        ValueError: it holds no JSON, or JSON that is nested too deep.
    """
    data = read_file(folder, name, MOST_JSON_BYTES)
    if _exceeds_value_limit(data):
        raise RecordError(f"{_shown(folder, name)} holds more values than the allowed {MOST_JSON_VALUES:,}")
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_NON_FINITE.get)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


_COLLECTED = b'{"k":"gc"'


def shows_progress(lines: bytes) -> bool:
    """Return whether lines of a trace show that a rank continues; Python collects garbage even if it stands still."""
    return lines.count(_COLLECTED) < lines.count(b"\n")


def parse_line(line: bytes) -> Any:
    """Parse the JSON value on a line; None if the line is damaged, nested too deep, or contains too many values."""
    if len(line) > _FEW_BYTES and _exceeds_value_limit(line):
        return None
    with suppress(ValueError, RecursionError, StopIteration):
        try:
            text = line.decode("utf-8", "surrogatepass")  # written so: a rank's text may contain a lone surrogate
        except UnicodeDecodeError:
            text = line.decode("utf-8", "replace")
        value, end = _scan(text, 0)  # twice as fast as json.loads, and nobody indents lines
        return None if text[end:].strip() else value
    return None


def read_lines(file: BinaryIO, longest: int = LONGEST_LINE_BYTES) -> Iterator[bytes]:
    """Yield the lines of an open file; of one that is too long, its beginning."""
    while line := file.readline(longest):
        yield line
        if not line.endswith(b"\n") and len(line) == longest:
            while (rest := file.readline(_CHUNK_BYTES)) and not rest.endswith(b"\n"):
                pass


def refuse_excess_ranks(folder: Path, name: str, count: int) -> None:
    """Refuse a record with more ranks than views show.

    Raises:
        RecordError: it has more.
    """
    if count > MOST_SHOWN_RANKS:
        raise RecordError(f"{_shown(folder, name)} names {count:,} ranks; allowed: up to {MOST_SHOWN_RANKS:,}")


def is_file(folder: Path, name: str) -> bool:
    """Return whether a record has a regular file of this name."""
    with suppress(OSError, RecordError), _opened_parent(folder, name) as (parent, last):
        return stat.S_ISREG(os.stat(last, dir_fd=parent, follow_symlinks=False).st_mode)
    return False


def is_record(folder: Path) -> bool:
    """Return whether a folder looks like a record: it has logs. A link counts too, so that views refuse it by name."""
    with suppress(OSError, ValueError):
        mode = os.lstat(folder / LOGS).st_mode
        return stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
    return False


def list_folder(folder: Path, name: str = "") -> dict[str, int]:
    """Return the sizes in bytes of regular files in a folder of a record; empty if there is no such folder.

    Raises:
        RecordError: it is no folder.
        OSError: it cannot be read.
    """
    return {one: about.st_size for one, about in _entries(folder, name) if stat.S_ISREG(about.st_mode)}


def list_names(folder: Path, name: str = "") -> list[str]:
    """Return the names of everything in a folder of a record; raises as `list_folder`."""
    return [one for one, _ in _entries(folder, name)]


def _entries(folder: Path, name: str) -> list[tuple[str, os.stat_result]]:
    statuses = []
    with suppress(FileNotFoundError), _opened_folder(folder, name) as opened, os.scandir(opened) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                statuses.append((entry.name, entry.stat(follow_symlinks=False)))
    return statuses


def measure_tree(folder: Path) -> int:
    """Return the bytes of all files below a folder; links are not followed."""
    size = 0
    for inside, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(inside, name)).st_size
    return size


def write_file(folder: Path, name: str, data: bytes, *, make_folders: bool = True) -> None:
    """Write a file of a record atomically. Replace an existing file, and do not follow a link.

    Raises:
        RecordError: a part of its path is no folder.
        OSError: it cannot be written.
    """
    with _opened_parent(folder, name, make_folders=make_folders) as (parent, last):
        replace_file(parent, last, data)


def replace_file(parent: int, name: str, data: bytes) -> None:
    """Write a file in an open folder atomically; no link is followed.

    Raises:
        OSError: it cannot be written.
    """
    temporary = f".{name[:200]}.{os.getpid()}.new"
    with suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=parent)
    try:
        with open(os.open(temporary, NEW_FLAGS, 0o666, dir_fd=parent), "wb") as file:
            file.write(data)
        os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise


def move_file(folder: Path, name: str, target: Path, new_name: str = "") -> None:
    """Move a file of a record to the folder of an attempt, or rename it in its own folder.

    Raises:
        RecordError: a part of a path is no folder.
        OSError: it cannot be moved.
    """
    new_name = new_name or name
    with _opened_parent(folder, name) as (parent, last), _opened_parent(target, new_name, make_folders=True) as there:
        os.rename(last, there[1], src_dir_fd=parent, dst_dir_fd=there[0])


def _refuse_special(about: os.stat_result, folder: Path, name: str) -> None:
    if stat.S_ISDIR(about.st_mode):  # ordinary damage: it is harmless
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not stat.S_ISREG(about.st_mode):
        raise _refusal(about, folder, name, "a regular file")


def _refusal(about: os.stat_result, folder: Path, name: str, allowed: str) -> RecordError:
    hint = "the lab writes only regular files and folders into a record: another program changed it"
    return RecordError(f"{_shown(folder, name)} is {KINDS[stat.S_IFMT(about.st_mode)]}; allowed: {allowed}", hint)


def _too_large(folder: Path, name: str, most_bytes: int) -> RecordError:
    return RecordError(f"{_shown(folder, name)} is larger than {format_limit(most_bytes)}", "use another program")


def _shown(folder: Path, name: str) -> str:
    text = clip_middle(name.replace("\n", "\\n"), _LONGEST_SHOWN)
    return f"{text} in the record {clip_middle(str(folder), _LONGEST_SHOWN)}"


def _exceeds_value_limit(data: bytes) -> bool:
    """Return whether JSON may contain too many values: each follows a comma or a bracket."""
    return len(data) > MOST_JSON_VALUES and data.count(b",") + data.count(b"[") + data.count(b"{") > MOST_JSON_VALUES


def _split(folder: Path, name: str) -> tuple[Path, list[str]]:
    """Return the folder that the user named, and the parts of a path below it; an earlier attempt is below its run.

    Raises:
        RecordError: the name leads out of the record.
    """
    parts = name.split("/") if name else []
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise RecordError(f"{_shown(folder, name)}: this name leads out of the record")
    if folder.parent.name == ATTEMPTS and folder.name.isdecimal():
        return folder.parent.parent, [ATTEMPTS, folder.name, *parts]
    return folder, parts


@contextmanager
def _opened_folder(folder: Path, name: str, *, make: bool = False) -> Iterator[int]:
    """Open a folder of a record; with `make`, create it and its parents first."""
    top, parts = _split(folder, name)
    here = os.open(top, _FOLDER)
    try:
        for number, part in enumerate(parts, 1):
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=here)
            try:
                above, here = here, os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
            except NotADirectoryError:
                about = os.stat(part, dir_fd=here, follow_symlinks=False)
                raise _refusal(about, top, "/".join(parts[:number]), "a folder") from None
            os.close(above)
        yield here
    finally:
        os.close(here)


@contextmanager
def _opened_parent(folder: Path, name: str, *, make_folders: bool = False) -> Iterator[tuple[int, str]]:
    """Open the folder of a file; yield it with the file's own name."""
    above, _, last = name.rpartition("/")
    _split(folder, name)
    with _opened_folder(folder, above, make=make_folders) as parent:
        yield parent, last


def lock_record(folder: Path) -> BinaryIO:
    """Lock a record until the file is closed or this process ends, which shows that its run is in progress."""
    file = open_file(folder, f"{LOCK}.new", append=True)  # no process checks the lock under this name
    with suppress(OSError):  # a file system without locks
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    move_file(folder, f"{LOCK}.new", folder, LOCK)
    return file


def is_held(folder: Path) -> bool:
    """Return whether a record is locked, because its run is in progress."""
    try:
        with open_file(folder, LOCK) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (OSError, RecordError) as error:  # except where it is locked: it has no lock, or no lock of the lab
        return isinstance(error, BlockingIOError)
    return False
