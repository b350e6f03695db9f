"""Tars of files and folders; the only code that decides which files of a tar may be written on this machine."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from lab.engine.new_file import NewFile, file_mode
from lab.errors import UsageError
from lab.node.files import READ_FLAGS, closing_descriptor
from lab.words import format_limit

LIMIT_BYTES = 1 << 30
"""Most bytes that one copy may write, unless the user allows more."""
MORE = "copy more with --max-size, such as --max-size 4GiB"
_SPARE_BYTES = 64 << 20
"""Bytes of a disk that stay free, or a twentieth of a small disk."""


def _write_limit(folder: Path, asked: int) -> tuple[int, UsageError]:
    """Return how many bytes may be written, at most what the disk has free, and the error for exceeding this."""
    disk = os.statvfs(folder)
    free = max(0, disk.f_bavail * disk.f_frsize - min(_SPARE_BYTES, disk.f_blocks * disk.f_frsize // 20))
    if free < asked:
        return free, UsageError(f"the copy needs more than the {format_limit(free)} of free space on this disk")
    return asked, UsageError(f"the copy has more than {format_limit(asked)}", MORE)


@contextmanager
def stage_replacement(target: Path) -> Iterator[Path]:
    """Yield a path in a new folder next to the target; move its contents to the target at the end.

    A link at the target is followed. An existing folder keeps its other files: new files replace those of the same
    names, and links in it are not followed.

    Raises:
        UsageError: the target cannot be written, or is of another kind; nothing is written then.
    """
    import shutil  # slow imports, and every run imports this module
    import tempfile

    hint = "choose a writable folder"
    with UsageError.on_os_error(f"cannot write {target}", hint):
        target = Path(os.path.realpath(target)) if target.is_symlink() else Path(os.path.abspath(target))
        if (mode := _mode_of(target)) and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise UsageError(f"cannot write {target}: it is neither a file nor a folder")
        prefix = f".{os.fsdecode(os.fsencode(target.name)[:60])}."
        staged = Path(tempfile.mkdtemp(prefix=prefix, suffix=".part", dir=target.parent))
    try:
        yield staged / "new"
        for move in list(_find_moves(staged / "new", target)):
            os.replace(*move)
    except OSError as error:
        where = str(error.filename or target).replace(f"{staged}/new", str(target))
        raise UsageError(f"cannot write {where}: {error.strerror or error}", hint) from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _find_moves(staged: Path, target: Path) -> Iterator[tuple[Path, Path]]:
    """Yield what to move where; an existing folder is merged with the new one.

    Raises:
        UsageError: a file is in the place of a folder or the reverse, or a special file is there.
    """
    there, is_folder = _mode_of(target), stat.S_ISDIR(_mode_of(staged))
    if is_folder and stat.S_ISDIR(there):
        for name in os.listdir(staged):
            yield from _find_moves(staged / name, target / name)
    elif there and (is_folder or not (stat.S_ISREG(there) or stat.S_ISLNK(there))):
        raise UsageError(f"cannot write {target}: a file cannot replace a folder, nor a folder a file")
    else:
        yield staged, target


def _mode_of(path: Path) -> int:
    with suppress(FileNotFoundError, NotADirectoryError):
        return os.lstat(path).st_mode
    return 0


MOST_ENTRIES = 50_000
"""Most files and folders of one copy."""
_HOLES = 8
"""The files of one copy may be this many times longer than the limit, holes included: reading holes takes time."""
_DEEPEST = 64
_LONGEST_PATH = 2000
"""In bytes; the kernel allows 4,096, including the folders above."""
_CHUNK_BYTES = 1 << 20
_PART_BYTES = 1 << 16
"""After so many bytes of a file, its limit is checked."""


class Source(NamedTuple):
    """A file or folder to pack."""

    path: Path
    name: str
    facts: os.stat_result
    link: str = ""


def pack_tar(
    path: Path,
    name: str,
    owner: tuple[int, int] | None = None,
    *,
    most_bytes: int | None = None,
    left_out: list[str] | None = None,
) -> Iterator[bytes]:
    """Yield the pieces of a tar of a file, or of everything in a folder, under another name.

    Links within the folder stay links. Links that lead out of it, devices, pipes, and sockets are left out.

    Args:
        path: what to pack; a link is followed.
        name: the first part of its entries' names.
        owner: uid and gid of the new owner, whose group may change everything. None: root.
        most_bytes: the largest size, holes included; None: no limit.
        left_out: receives the names of excluded entries.

    Raises:
        UsageError: it cannot be read, or is too large; most errors come before the first piece.
    """
    return pack_pieces(_find_sources(path, name, most_bytes, left_out), owner)


def pack_files(files: Mapping[str, Path]) -> Iterator[bytes]:
    """Yield a tar of files and folders, by their names in it, in this order; a folder comes without its files."""
    return pack_pieces(Source(path.resolve(), name, path.stat()) for name, path in files.items())


def pack_pieces(sources: Iterable[Source], owner: tuple[int, int] | None = None) -> Iterator[bytes]:
    """Yield the pieces of a tar of these sources, in this order; `owner`: see `pack_tar`.

    Raises:
        UsageError: a file cannot be read, or is no file any more.
    """
    for source in sources:
        entry = tarfile.TarInfo(source.name)
        entry.mtime = int(source.facts.st_mtime)
        if source.link:
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, source.link, 0o777
        elif stat.S_ISDIR(source.facts.st_mode):
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        else:
            entry.size, entry.mode = source.facts.st_size, file_mode(bool(source.facts.st_mode & 0o100))
        if owner is not None:
            entry.uid, entry.gid = owner
            entry.mode |= (entry.mode & 0o700) >> 3
        yield entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        if entry.isreg():
            yield from _content(source)
            yield bytes(-entry.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _content(source: Source) -> Iterator[bytes]:
    """Yield as many bytes as a file had; zeros if it has become shorter."""
    end = source.facts.st_size
    with _opened(source.path) as descriptor:
        for at in range(0, end, _CHUNK_BYTES):
            size = min(_CHUNK_BYTES, end - at)
            yield os.pread(descriptor, size, at).ljust(size, b"\0")


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a regular file for reading, without following a link or blocking on a pipe.

    Raises:
        UsageError: it is no regular file, or cannot be read.
    """
    reading = UsageError.on_os_error(f"cannot read {path}")
    with reading, closing_descriptor(os.open(path, READ_FLAGS)) as descriptor:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError(f"cannot read {path}: it is not a regular file")
        yield descriptor


def _find_sources(path: Path, name: str, most_bytes: int | None, left_out: list[str] | None) -> list[Source]:
    """Return what to pack, folders before their content; see `pack_tar`."""
    sources, total = list[Source](), 0
    try:
        top = Path(os.path.realpath(path, strict=True))
        pending = [(top, name)]
        while pending:
            here, below = pending.pop()
            if (source := _source(here, below, top)) is None:
                if left_out is not None:
                    left_out.append(str(here))
                continue
            sources.append(source)
            total += source.facts.st_size if stat.S_ISREG(source.facts.st_mode) else 0
            if most_bytes is not None and total > most_bytes:
                raise UsageError(f"{path} holds more than {format_limit(most_bytes)}", MORE)
            if len(sources) > MOST_ENTRIES:
                raise UsageError(f"{path} holds more than {MOST_ENTRIES:,} files and folders")
            if stat.S_ISDIR(source.facts.st_mode):
                pending += [(here / one, f"{below}/{one}") for one in sorted(os.listdir(here), reverse=True)]
    except OSError as error:
        where = error.filename if sources else path
        raise UsageError(f"cannot read {where}: {error.strerror or error}") from error
    if not sources:
        raise UsageError(f"cannot read {path}: it is neither a file nor a folder")
    return sources


def _source(path: Path, name: str, top: Path) -> Source | None:
    """Return a file, a folder, or a link within the folder; None for anything else."""
    facts = os.lstat(path)
    if stat.S_ISLNK(facts.st_mode):
        target = Path(os.path.realpath(path))
        inside = target.is_relative_to(top) and target != top and path != top
        return Source(path, name, facts, os.path.relpath(target, path.parent)) if inside else None
    if stat.S_ISREG(facts.st_mode):
        with _opened(path):  # check that it can be read before anything is packed
            return Source(path, name, facts)
    return Source(path, name, facts) if stat.S_ISDIR(facts.st_mode) else None


_MOST_EXTENSION_BYTES = 1 << 14
"""Limit of an entry's extension: a path and a link's target have at most 4,096 bytes each.

Before Python 3.12.6, tarfile takes time by the square of this (CVE-2024-6232): a second for 16 KiB of digits.
"""
_PAX_EXTENSIONS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_EXTENSIONS = (*_PAX_EXTENSIONS, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


class Header(tarfile.TarInfo):
    """An untrusted header of a tar: tarfile itself reads as much of an extension as its header states."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Header:
        """Return the header in a block of a tar."""
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if not bytes(buf).strip(b"\0"):  # the end
                raise
            raise UsageError("the archive is damaged: it has an invalid header") from error
        if header.type in _EXTENSIONS and not 0 <= header.size <= _MOST_EXTENSION_BYTES:
            raise UsageError(f"the archive is damaged: an extended header has {header.size:,} bytes")
        if header.type == tarfile.GNUTYPE_SPARSE:
            raise UsageError("the archive is damaged: it has a sparse file of an old format")
        return header

    def _proc_gnusparse_10(self, *_: Any) -> None:
        """Refuse a list of holes, which may have any length."""
        raise UsageError("the archive is damaged: it has a sparse file of a new format")


def unpack_tar(pieces: Iterable[bytes], target: Path, *, most_bytes: int = LIMIT_BYTES) -> list[str]:
    """Write the file or folder that a tar holds, under another name, completely or not at all.

    An existing folder keeps its other files; files of the same names are replaced.

    Args:
        pieces: of the tar; a generator is closed, whether read to its end or not.
        target: the new path; a link is followed.
        most_bytes: how much may be written, holes excluded; never more than the disk has free.

    Returns:
        The names of excluded entries: those that are neither file nor folder, or have a path that leads elsewhere.

    Raises:
        UsageError: the target is not writable, or the archive is too large or damaged; then nothing is written.
    """
    with stage_replacement(target) as new:
        limit_bytes, too_much = _write_limit(new.parent, most_bytes)
        stream: Any = _Stream(pieces, limit_bytes * _HOLES + MOST_ENTRIES * 2 * tarfile.BLOCKSIZE, too_much)
        try:
            with tarfile.open(
                fileobj=stream, mode="r:", tarinfo=Header, encoding="utf-8", errors="surrogateescape"
            ) as archive:
                left_out = _unpack(archive, new, limit_bytes, too_much)
        except (tarfile.TarError, ValueError, RecursionError) as error:
            raise UsageError(f"the archive is damaged: {error}") from error
        finally:
            getattr(pieces, "close", lambda: None)()
        if not new.exists():
            what = f"{left_out[0]} is neither a file nor a folder" if left_out else "the archive is empty"
            raise UsageError(f"nothing to copy: {what}", "list the folder: `lab exec NODE -- ls PATH`")
        return left_out


class _Stream:
    """A tar that is read forwards, and its content without copies; `tarfile` alone is half as fast.

    Args:
        pieces: of the tar.
        most_bytes: its largest size.
        too_much: raised if it is larger.
    """

    def __init__(self, pieces: Iterable[bytes], most_bytes: int, too_much: UsageError) -> None:
        self._pieces = iter(pieces)
        self._piece = memoryview(b"")
        self._left_bytes, self._too_much = most_bytes, too_much
        self._at = 0

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self._at

    def seek(self, position: int) -> None:
        """Skip bytes."""
        for _ in self.read_parts(position - self._at):
            pass

    def read(self, size: int) -> bytes:
        """Return this many bytes, or those that are left."""
        return b"".join(self.read_parts(size))

    def read_parts(self, size: int) -> Iterator[memoryview]:
        """Yield this many bytes in parts, or those that are left."""
        while size > 0:
            while not self._piece:
                if (piece := next(self._pieces, None)) is None:
                    return
                self._piece = memoryview(piece)
                self._left_bytes -= len(piece)
                if self._left_bytes < 0:
                    raise self._too_much
            most = min(size, _PART_BYTES)
            part, self._piece = self._piece[:most], self._piece[most:]
            size -= len(part)
            self._at += len(part)
            yield part


def _unpack(archive: tarfile.TarFile, top: Path, limit_bytes: int, too_much: UsageError) -> list[str]:
    left_out, longest = list[str](), limit_bytes * _HOLES
    for count, entry in enumerate(archive):
        below, first = _below(entry.name), _file_of(entry, top)
        longest -= first.facts.st_size if first else entry.size
        if longest < 0 or entry.size < 0:
            raise too_much
        if count >= MOST_ENTRIES:
            raise UsageError(f"the copy has more than {MOST_ENTRIES:,} files and folders")
        if below is None or not (entry.isreg() or entry.isdir() or first):
            left_out.append(entry.name[:_LONGEST_PATH])
            continue
        try:
            if entry.isdir():
                os.mkdir(top / below, 0o755)
                continue
            mode = first.facts.st_mode if first else entry.mode
            with closing(NewFile(top / below, executable=bool(mode & 0o100))) as file:
                for data in _content(first) if first else _content_of(archive, entry):
                    file.write(data)
                    if file.written_bytes > limit_bytes:
                        raise too_much
            limit_bytes -= file.written_bytes
        except FileExistsError:
            if not entry.isdir() or not (top / below).is_dir():
                left_out.append(entry.name)  # an earlier entry has this name
    return left_out


def _content_of(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> Iterator[bytes | memoryview]:
    stream: Any = archive.fileobj
    if not entry.issparse():
        stream.seek(entry.offset_data)
        yield from stream.read_parts(entry.size)
        if stream.tell() < entry.offset_data + entry.size:
            raise tarfile.ReadError("unexpected end of data")
        return
    file: Any = archive.extractfile(entry)
    while data := file.read(_CHUNK_BYTES):
        yield data


def _file_of(entry: tarfile.TarInfo, top: Path) -> Source | None:
    """Return the earlier file to which a hard link refers, so that it is written again; None for other entries."""
    path = top / (_below(entry.linkname) or "")
    return Source(path, entry.name, os.lstat(path)) if entry.islnk() and stat.S_ISREG(_mode_of(path)) else None


def _below(name: str) -> PurePosixPath | None:
    """Return the path of an entry below the top folder; None if it leads elsewhere, or is impossible here."""
    path, encoded = PurePosixPath(name), os.fsencode(name)
    too_long = len(encoded) > _LONGEST_PATH or any(len(part) > 255 for part in encoded.split(b"/"))
    if too_long or not path.parts or path.is_absolute() or ".." in path.parts or b"\0" in encoded:
        return None
    return PurePosixPath(*path.parts[1:]) if len(path.parts) <= _DEEPEST else None
