"""Files and folders as tars: what travels between this machine and a node that is up."""

from __future__ import annotations

import os
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import IO

from lab.errors import UsageError

_IN_MEMORY_BYTES = 8 * 1024**2


def pack(path: Path, name: str, owner: tuple[int, int] | None = None) -> IO[bytes]:
    """A tar of a file or of everything in a folder, under another name; links stay links.

    Args:
        path: what to pack.
        name: what its entries begin with.
        owner: uid and gid of whoever shall own it; all in that group may change it. None: as it is.

    Raises:
        UsageError: it cannot be read.
    """

    def given(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        if owner is not None:
            entry.uid, entry.gid = owner
            entry.uname = entry.gname = ""
            entry.mode |= (entry.mode & 0o700) >> 3
        return entry

    archive = empty()
    try:
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.add(path, name, filter=given)
    except OSError as error:
        raise UsageError(f"cannot read {error.filename or path}: {error.strerror or error}") from error
    archive.seek(0)
    return archive


def unpack(archive: IO[bytes], target: Path) -> list[str]:
    """Write the file or folder that a tar holds, under another name; what is neither is left out and named.

    Raises:
        UsageError: it cannot be written.
    """
    left_out = []
    try:
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            for entry in tar:
                below = PurePosixPath(*PurePosixPath(entry.name).parts[1:])
                path = target / below
                if ".." in below.parts or below.is_absolute() or not (entry.isreg() or entry.isdir()):
                    left_out.append(entry.name)
                elif entry.isdir():
                    path.mkdir(exist_ok=True)
                else:
                    _write(tar, entry, path)
    except OSError as error:
        raise UsageError(f"cannot write {error.filename or target}: {error.strerror or error}") from error
    return left_out


def name_of(archive: IO[bytes]) -> str:
    """What the entries of a tar begin with."""
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        first = tar.next()
    archive.seek(0)
    return PurePosixPath(first.name).parts[0] if first is not None else ""


def empty() -> IO[bytes]:
    """A file for a tar; a small one is kept in memory."""
    return tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)


def _write(tar: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    source = tar.extractfile(entry)
    assert source is not None
    with source, open(path, "wb") as file:
        while data := source.read(1 << 20):
            file.write(data)
    os.chmod(path, entry.mode & 0o777 | 0o600)
