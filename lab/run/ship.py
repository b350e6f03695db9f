"""Files of a run: pack the scenario's folder for the nodes, and fetch what ranks created."""

from __future__ import annotations

import os
import re
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import translate
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lab.engine.archive import NewFile, Source, pack_pieces
from lab.errors import RecordError, UsageError
from lab.grouping import group_pairs
from lab.node.messages.agent import SHARED, Files, Made, MadeFile, Piece
from lab.record.record_files import move_file
from lab.words import format_bytes, format_count, format_limit

if TYPE_CHECKING:
    from lab.record.result import Output

# -- to the nodes

_LONGEST_IGNORE, _MOST_PATTERNS = 64 * 1024, 1000
"""Limits of `.labignore`: every path is matched against every pattern."""
LIMIT_BYTES = 64 * 1024**2
"""Most bytes shipped to nodes, and most bytes fetched from one run; beyond this, the largest files are left out."""
_LIMIT = format_limit(LIMIT_BYTES)
_MOST_FILES = 20_000
_DEEPEST = 100
_CHUNK_BYTES = 96 * 1024
_SKIPPED_FOLDERS = {"__pycache__", "node_modules", "venv", "site-packages"}
"""Never shipped, nor are folders whose name begins with a dot."""
_DATA = (
    "put the script into its own folder, and name data folders with `data:` or --data NAME=FOLDER: the lab does not "
    "ship these, and ranks read them at $LAB_DATA/NAME"
)
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Parcel(NamedTuple):
    """The shipped part of a folder."""

    archive: bytes
    """A compressed tar."""
    left_out: tuple[str, ...] = ()
    """Files that a script might miss, each as its path below the folder and its kind."""

    @property
    def warning(self) -> str:
        """Names the first file that was left out; empty if none was."""
        others = f" (and {len(self.left_out) - 1} more)" if len(self.left_out) > 1 else ""
        return f"warning: not shipped: {self.left_out[0]}{others}" if self.left_out else ""


EMPTY = Parcel(zlib.compress(bytes(tarfile.RECORDSIZE)))
"""An empty archive."""


def pack_folder(folder: Path, data: Iterable[Path] = (), modules: Mapping[str, Path] | None = None) -> Parcel:
    """Pack everything below a folder, without caches, virtual environments, and hidden folders.

    A link to something in the folder is shipped as a link; no link is followed. A file `.labignore` in the folder
    excludes more: one pattern a line, matched against names and against paths below the folder. A pattern that ends
    with `/` matches only folders; `#` begins a comment. Folders of `data` are excluded too: nodes have them.
    Files of `modules` are added under their names.

    Raises:
        UsageError: there are more than 64 MiB or 20,000 files, folders are nested too deep, or a file is unreadable.
            The message names it, or the largest file.
    """
    top, left_out = Path(os.path.realpath(folder)), list[str]()
    is_data = {Path(os.path.realpath(one)) for one in data}.__contains__
    sources, total, largest = list[Source](), 0, (0, "")
    added = ((path, Path(name), path.stat()) for name, path in (modules or {}).items())
    for path, below, about in chain(_list_tree(top, is_data, _read_labignore(top)), added):
        link, mode = "", about.st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
            left_out.append(f"{below} is {kind}")
            continue
        total, largest = total + about.st_size, max(largest, (about.st_size, str(below)))
        if stat.S_ISLNK(mode):
            target = Path(os.path.realpath(path))
            if not target.is_relative_to(top):
                left_out.append(f"{below} is a link that leads out of the folder, to {target}")
                continue
            link = os.path.relpath(target, path.parent)
        sources.append(Source(path, below.as_posix(), about, link))
        if total > LIMIT_BYTES or len(sources) > _MOST_FILES:
            raise UsageError(
                f"{folder} is too large to ship; allowed: {_LIMIT} and {_MOST_FILES:,} files; "
                f"the largest seen is {largest[1]} ({format_bytes(largest[0])})",
                _DATA,
            )
    return Parcel(zlib.compress(b"".join(pack_pieces(sources)), 1), tuple(left_out))


Ignored = Callable[[Path, bool], bool]
"""Whether to exclude something, by its path below the top folder, and whether it is a folder."""


def _list_tree(
    top: Path, is_data: Callable[[Path], bool], is_ignored: Ignored
) -> Iterator[tuple[Path, Path, os.stat_result]]:
    """Yield everything that is no folder: its path, that below the top folder, and its status; a link's own status."""
    pending, folder_count = [Path()], 0
    while pending:
        folder = pending.pop()
        folder_count += 1
        if folder_count > _MOST_FILES:
            raise UsageError(f"{top} has too many folders to ship; allowed: {_MOST_FILES:,}", _DATA)
        if len(folder.parts) > _DEEPEST:
            raise UsageError(f"{top / Path(*folder.parts[:3])} has folders more than {_DEEPEST} deep", _DATA)
        folders = []
        try:
            with os.scandir(top / folder) as entries:
                children = sorted(entries, key=lambda entry: entry.name)
            for entry in children:
                below, is_folder = folder / entry.name, entry.is_dir(follow_symlinks=False)
                is_skipped = entry.name in _SKIPPED_FOLDERS or entry.name.startswith(".")
                if (is_skipped and os.path.isdir(entry)) or is_data(top / below) or is_ignored(below, is_folder):
                    continue
                if is_folder:
                    folders.append(below)
                elif not entry.name.endswith((".pyc", ".pyo")):
                    yield top / below, below, entry.stat(follow_symlinks=False)
        except OSError as error:
            raise UsageError(f"cannot read {top / folder}: {error.strerror or error}", _DATA) from error
        pending += reversed(folders)


def _read_labignore(folder: Path) -> Ignored:
    """Return a function that tells whether `.labignore` names a path below its folder."""
    try:
        with open(os.open(folder / ".labignore", _FILE), encoding="utf-8", errors="replace") as file:
            text = file.read(_LONGEST_IGNORE + 1)
    except OSError:
        return lambda *_: False
    patterns = [line.partition("#")[0].strip() for line in text.splitlines()]
    if len(text) > _LONGEST_IGNORE or len(patterns) > _MOST_PATTERNS:
        allowed = f"{_LONGEST_IGNORE:,} characters and {_MOST_PATTERNS:,} lines"
        raise UsageError(f"{folder / '.labignore'} is too long; allowed: {allowed}", "name folders: `data/`")

    def matches_any(patterns: Iterable[str]) -> re.Pattern[str]:
        return re.compile("|".join(map(translate, filter(None, patterns))) or "(?!)")

    of_all = matches_any(pattern for pattern in patterns if not pattern.endswith("/"))
    of_folders = matches_any(pattern.rstrip("/") for pattern in patterns)

    def is_ignored(path: Path, is_folder: bool) -> bool:
        named = of_folders if is_folder else of_all
        return bool(named.match(path.name) or named.match(str(path)))

    return is_ignored


def file_messages(run: str, archive: bytes, *, for_check: bool = False) -> Iterator[Files]:
    """Yield the archive as messages to an agent; with `for_check`, no rank can see it."""
    for start in range(0, len(archive), _CHUNK_BYTES):
        end = start + _CHUNK_BYTES
        yield Files(run, archive[start:end], last=end >= len(archive), for_check=for_check)


# -- from the nodes

_LONGEST_PATH = 1000


class Outputs:
    """Files that the nodes of one run created, and those that are fetched.

    A file that several ranks created alike is kept once, under its path; any other is kept below `rank<N>`.

    Args:
        folder: where to put the files; created for the first one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fetched: list[Output] = []
        """Files that have arrived."""
        self.left_out: list[str] = []
        """Files that have not, each with the reason."""
        self._made: dict[str, Made] = {}
        self._awaited: dict[tuple[str, str], tuple[Output, bool, str]] = {}
        """Requested files by node and path there: the output, whether its owner may execute it, its temporary name."""
        self._open: dict[tuple[str, str], NewFile] = {}
        self._unfinished: Path | None = None
        """The folder of files that have not arrived completely."""

    @property
    def nodes(self) -> set[str]:
        """Nodes that wait for a request for files."""
        return set(self._made)

    def handle_message(self, node: str, message: Any) -> None:
        """Handle a node's list of files, or a piece of a file."""
        if isinstance(message, Made):
            self._made[node] = message
        elif isinstance(message, Piece) and (node, message.path) in self._awaited:
            self._add_piece((node, message.path), message)

    def choose(self) -> Mapping[str, list[str]]:
        """Return the paths to fetch from each node; leave out files beyond the limit."""
        chosen: dict[str, list[str]] = {node: [] for node in self._made}
        capacity_bytes, used_paths = LIMIT_BYTES, set[str]()
        for node, output, file in sorted(_list_copies(self._made), key=lambda copy: (copy[1].bytes, copy[1].path)):
            if not _is_path(file.path):
                self._leave_out(output, "its name is not a valid path")
            elif not file.fingerprint:
                self._leave_out(output, f"it is {format_bytes(output.bytes)}")
            elif output.bytes > capacity_bytes:
                self._leave_out(output, f"its {format_bytes(output.bytes)} exceed the {_LIMIT} of a run")
            elif output.path in used_paths:
                self._leave_out(output, "another file has its name")
            else:
                capacity_bytes -= output.bytes
                used_paths.add(output.path)
                chosen[node].append(file.path)
                self._awaited[node, file.path] = output, file.executable, str(len(self._awaited))
        unlisted = sum(made.omitted for made in self._made.values())
        if unlisted:
            self.left_out.append(f"{format_count(unlisted, 'more file')}: there are too many")
        return chosen

    def close(self) -> None:
        """Leave out files that have not arrived completely."""
        for node, path in tuple(self._awaited):
            self._abandon((node, path), f"{node} did not send it")
        if self._unfinished is not None:
            import shutil

            shutil.rmtree(self._unfinished, ignore_errors=True)
        self.fetched.sort(key=lambda output: output.path)

    def _add_piece(self, key: tuple[str, str], piece: Piece) -> None:
        """Write a piece of a file; leave the file out if this fails."""
        output, executable, name = self._awaited[key]
        try:
            if self._unfinished is None:
                import tempfile

                self.folder.mkdir(parents=True, exist_ok=True)
                self._unfinished = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=self.folder))
            if key not in self._open:
                self._open[key] = NewFile(self._unfinished / name, executable=executable)
            file = self._open[key]
            file.write(piece.data)
            if file.size_bytes > output.bytes:
                self._abandon(key, f"{key[0]} sent more bytes than its size")
            elif piece.last:
                file.close()
                move_file(self.folder, f"{self._unfinished.name}/{name}", self.folder, output.path)
                del self._awaited[key], self._open[key]
                self.fetched.append(output)
        except (OSError, RecordError) as error:
            why = error.message if isinstance(error, RecordError) else error.strerror or error
            self._abandon(key, f"it cannot be written: {why}")

    def _abandon(self, key: tuple[str, str], why: str) -> None:
        """Leave out a requested file; `close` removes what has arrived of it."""
        if file := self._open.pop(key, None):
            with suppress(OSError):
                file.close()
        self._leave_out(self._awaited.pop(key)[0], why)

    def _leave_out(self, output: Output, why: str) -> None:
        self.left_out.append(f"{output.path}: {why}")


def _list_copies(made: Mapping[str, Made]) -> Iterator[tuple[str, Output, MadeFile]]:
    """Yield each file to keep once: the node that has it, the output, and the node's description of it."""
    from lab.record.result import Output

    by_path = group_pairs((file.path, (node, file)) for node, message in made.items() for file in message.files)
    for path, copies in by_path.items():
        node, first = copies[0]
        are_alike = len({file.fingerprint for _, file in copies}) == 1 and first.fingerprint
        if are_alike and (len(copies) > 1 or path.startswith(SHARED)) and not path.startswith("rank"):
            ranks = tuple(sorted({file.rank for _, file in copies}))
            yield node, Output(path=path, ranks=ranks, bytes=first.bytes), first
        else:
            for node, file in copies:
                yield node, Output(path=f"rank{file.rank}/{path}", ranks=(file.rank,), bytes=file.bytes), file


def _is_path(path: str) -> bool:
    """Return whether the path leads below a folder: nodes may send any path."""
    parts = path.split("/")
    return len(path) < _LONGEST_PATH and "\0" not in path and not any(part in ("", ".", "..") for part in parts)
