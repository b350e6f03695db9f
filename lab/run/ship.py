"""The scenario's folder as an archive for the nodes."""

from __future__ import annotations

import io
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from fnmatch import translate
from pathlib import Path

from lab.errors import UsageError
from lab.node.messages import Files
from lab.words import format_bytes, format_limit

_LIMIT_BYTES = 64 * 1024 * 1024
_MOST_FILES = 20_000
_CHUNK_BYTES = 96 * 1024
_SKIPPED_FOLDERS = {"__pycache__", "node_modules", "venv", "site-packages"}
"""Never shipped, like every folder whose name begins with a dot."""


def pack_folder(folder: Path) -> bytes:
    """A compressed tar of everything below a folder, without caches, virtual environments and hidden folders.

    A file `.labignore` in the folder names more that stays behind: one pattern a line, matched against names and
    against paths below the folder; `#` begins a comment.

    Raises:
        UsageError: there is more than 64 MiB or 20,000 files; the message names the largest.
    """
    files: list[tuple[int, Path]] = []
    total = 0
    ignored = _ignored(folder)
    for where, folders, names in os.walk(folder, followlinks=True):
        below = Path(where).relative_to(folder)
        folders[:] = sorted(
            name
            for name in folders
            if not _skips_folder(name) and not ignored(below / name) and not _leads_back(Path(where, name))
        )
        for name in sorted(names):
            path = Path(where, name)
            if not path.is_file() or name.endswith((".pyc", ".pyo")) or ignored(below / name):
                continue
            size = path.stat().st_size
            total += size
            files.append((size, path))
            if total > _LIMIT_BYTES or len(files) > _MOST_FILES:
                raise _too_much(folder, files)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for _, path in files:
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            try:
                with path.open("rb") as file:  # what a link names is not in a node
                    facts = os.fstat(file.fileno())
                    entry.size, entry.mode, entry.mtime = facts.st_size, facts.st_mode & 0o777 | 0o644, facts.st_mtime
                    archive.addfile(entry, file)
            except OSError as error:
                raise UsageError(f"cannot read {path}: {error.strerror}") from error
    return zlib.compress(buffer.getvalue(), 1)


def _skips_folder(name: str) -> bool:
    return name in _SKIPPED_FOLDERS or name.startswith(".")


def _leads_back(folder: Path) -> bool:
    """Whether a folder is a link to one that it lies in."""
    return folder.is_symlink() and folder.resolve() in folder.parent.resolve().joinpath("x").parents


def _ignored(folder: Path) -> Callable[[Path], bool]:
    """Whether `.labignore` names a path below the folder."""
    try:
        lines = (folder / ".labignore").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return lambda _: False
    stripped = (line.partition("#")[0].strip().rstrip("/") for line in lines)
    named = re.compile("|".join(translate(pattern) for pattern in stripped if pattern) or "(?!)")
    return lambda path: bool(named.match(path.name) or named.match(str(path)))


def _too_much(folder: Path, files: list[tuple[int, Path]]) -> UsageError:
    size, largest = max(files)
    return UsageError(
        f"{folder} holds more than a run can ship ({format_limit(_LIMIT_BYTES)} or {_MOST_FILES:,} files); "
        f"the largest seen is {largest.relative_to(folder)} ({format_bytes(size)})",
        "put the script into a folder of its own and mount data with `volumes:` or --volume",
    )


def file_messages(run: str, archive: bytes) -> Iterator[Files]:
    """The archive as messages to an agent."""
    for start in range(0, len(archive), _CHUNK_BYTES):
        end = start + _CHUNK_BYTES
        yield Files(run, archive[start:end], last=end >= len(archive))
