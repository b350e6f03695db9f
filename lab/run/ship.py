"""The scenario's folder as an archive for the nodes: its files, and links that stay within it."""

from __future__ import annotations

import os
import re
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from fnmatch import translate
from pathlib import Path
from typing import NamedTuple

from lab.engine.archive import Source, pack_pieces
from lab.errors import UsageError
from lab.node.messages.agent import Files
from lab.words import format_bytes, format_limit

_LONGEST_IGNORE, _MOST_PATTERNS = 64 * 1024, 1000
"""Of `.labignore`: every path is matched against every pattern."""
_LIMIT_BYTES = 64 * 1024 * 1024
_MOST_FILES = 20_000
_DEEPEST = 100
_CHUNK_BYTES = 96 * 1024
_SKIPPED_FOLDERS = {"__pycache__", "node_modules", "venv", "site-packages"}
"""Never shipped, like every folder whose name begins with a dot."""
_DATA = (
    "put the script into a folder of its own, and name folders of data under `data:` in the scenario or with "
    "--data NAME=FOLDER: they are not shipped, and ranks read them at $LAB_DATA/NAME"
)
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Parcel(NamedTuple):
    """What is shipped of a folder."""

    archive: bytes
    """A compressed tar."""
    left_out: tuple[str, ...] = ()
    """What a script might miss, each as the path below the folder and what it is."""

    @property
    def warning(self) -> str:
        """What was left out, naming the first; empty where nothing was."""
        more = f" (and {len(self.left_out) - 1} more)" if len(self.left_out) > 1 else ""
        return f"warning: not shipped: {self.left_out[0]}{more}" if self.left_out else ""


EMPTY = Parcel(zlib.compress(bytes(tarfile.RECORDSIZE)))
"""Nothing."""


def pack_folder(folder: Path, data: Iterable[Path] = ()) -> Parcel:
    """Everything below a folder, without caches, virtual environments and hidden folders.

    A link to something in the folder is shipped as a link; no link is followed. A file `.labignore` in the folder names
    more that stays behind: one pattern a line, matched against names and against paths below the folder; one that ends
    with `/` is matched by folders only; `#` begins a comment. Folders of `data` stay behind too: nodes have them.

    Raises:
        UsageError: there is more than 64 MiB or 20,000 files, folders lie too deep, or something cannot be read; the
            message names it, or the largest.
    """
    top, left_out = Path(os.path.realpath(folder)), list[str]()
    sources, total, largest = list[Source](), 0, (0, "")
    for below, facts in _entries(top, _ignored(top, data)):
        path, link, mode = top / below, "", facts.st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            left_out.append(f"{below} is {_kind(mode)}")
            continue
        total, largest = total + facts.st_size, max(largest, (facts.st_size, str(below)))
        if stat.S_ISLNK(mode):
            target = Path(os.path.realpath(path))
            if not target.is_relative_to(top):
                left_out.append(f"{below} is a link that leads out of the folder, to {target}")
                continue
            link = os.path.relpath(target, path.parent)
        sources.append(Source(path, below.as_posix(), facts, link))
        if total > _LIMIT_BYTES or len(sources) > _MOST_FILES:
            raise _too_much(folder, *largest)
    return Parcel(zlib.compress(b"".join(pack_pieces(sources)), 1), tuple(left_out))


def _entries(top: Path, ignored: Ignored) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything that is no folder: its path below the top one, and what it is; of a link, its own."""
    waiting, seen = [Path()], 0
    while waiting:
        where = waiting.pop()
        seen += 1
        if seen > _MOST_FILES:
            raise UsageError(f"{top} holds more folders than a run can ship ({_MOST_FILES:,})", _DATA)
        if len(where.parts) > _DEEPEST:
            first = Path(*where.parts[:3])
            raise UsageError(f"{top} holds folders that lie more than {_DEEPEST} deep, in {first}")
        folders = []
        try:
            with os.scandir(top / where) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
            for entry in found:
                below = where / entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if (_skips_folder(entry.name) and os.path.isdir(entry)) or ignored(below, is_folder):
                    continue
                if is_folder:
                    folders.append(below)
                elif not entry.name.endswith((".pyc", ".pyo")):
                    yield below, entry.stat(follow_symlinks=False)
        except OSError as error:
            raise _unreadable(top / where, error) from error
        waiting += reversed(folders)


def _kind(mode: int) -> str:
    names = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    return next((name for test, name in names if test(mode)), "a device")


def _skips_folder(name: str) -> bool:
    return name in _SKIPPED_FOLDERS or name.startswith(".")


Ignored = Callable[[Path, bool], bool]
"""Whether something stays behind: its path below the top folder, and whether it is a folder."""


def _ignored(folder: Path, data: Iterable[Path]) -> Ignored:
    """Whether a path below the folder is data, or is named by `.labignore`."""
    apart = {Path(os.path.realpath(one)) for one in data}
    named = _named_by_labignore(folder)
    return (lambda path, is_folder: folder / path in apart or named(path, is_folder)) if apart else named


def _named_by_labignore(folder: Path) -> Ignored:
    try:
        with open(os.open(folder / ".labignore", _FILE), encoding="utf-8", errors="replace") as file:
            text = file.read(_LONGEST_IGNORE + 1)
    except OSError:
        return lambda *_: False
    patterns = [line.partition("#")[0].strip() for line in text.splitlines()]
    if len(text) > _LONGEST_IGNORE or len(patterns) > _MOST_PATTERNS:
        allowed = f"{_LONGEST_IGNORE:,} characters and {_MOST_PATTERNS:,} lines"
        raise UsageError(f"{folder / '.labignore'} is too long; allowed: {allowed}", "name folders: `data/`")
    all_named = _any_of(pattern for pattern in patterns if not pattern.endswith("/"))
    folders_named = _any_of(pattern.rstrip("/") for pattern in patterns)

    def ignored(path: Path, is_folder: bool) -> bool:
        named = folders_named if is_folder else all_named
        return bool(named.match(path.name) or named.match(str(path)))

    return ignored


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """What matches any of the patterns that are not empty."""
    return re.compile("|".join(translate(pattern) for pattern in patterns if pattern) or "(?!)")


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot read {path}: {error.strerror or error}")


def _too_much(folder: Path, size: int, largest: str) -> UsageError:
    return UsageError(
        f"{folder} holds more than a run can ship ({format_limit(_LIMIT_BYTES)} or {_MOST_FILES:,} files); "
        f"the largest seen is {largest} ({format_bytes(size)})",
        _DATA,
    )


def file_messages(run: str, archive: bytes, *, for_check: bool = False) -> Iterator[Files]:
    """The archive as messages to an agent; `for_check`: no rank gets to see it."""
    for start in range(0, len(archive), _CHUNK_BYTES):
        end = start + _CHUNK_BYTES
        yield Files(run, archive[start:end], last=end >= len(archive), for_check=for_check)
