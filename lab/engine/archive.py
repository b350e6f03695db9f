"""Tars of files and folders, and the only code that decides what may arrive on this machine from one."""

from __future__ import annotations

import io
import os
import re
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

from lab.errors import UsageError
from lab.words import format_limit

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

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
        if (mode := _mode_of(target)) and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise UsageError(f"cannot write {target}: it is neither a file nor a folder")
        prefix = f".{os.fsdecode(os.fsencode(target.name)[:60])}."
        staged = Path(tempfile.mkdtemp(prefix=prefix, suffix=".part", dir=target.parent))
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from error
    try:
        yield staged / "new"
        for move in list(_find_moves(staged / "new", target)):
            os.replace(*move)
    except OSError as error:
        where = str(error.filename or target).replace(f"{staged}/new", str(target))
        raise UsageError(f"cannot write {where}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _find_moves(staged: Path, target: Path) -> Iterator[tuple[Path, Path]]:
    """What is moved where; a folder that is there takes what is new.

    Raises:
        UsageError: a file is in the place of a folder, a folder in that of anything else, or a special file is there.
    """
    there, is_folder = _mode_of(target), stat.S_ISDIR(_mode_of(staged))
    if is_folder and stat.S_ISDIR(there):
        for name in os.listdir(staged):
            yield from _find_moves(staged / name, target / name)
    elif there and (is_folder or not (stat.S_ISREG(there) or stat.S_ISLNK(there))):
        raise UsageError(f"cannot write {target}: something else of that name is there")
    else:
        yield staged, target


def _mode_of(path: Path) -> int:
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


MOST_ENTRIES = 50_000
"""Files and folders of one copy."""
_HOLES = 8
"""So many times the limit may the copied files be long, holes included: reading these takes time too."""
_DEEPEST = 64
_LONGEST_PATH = 2000
"""Bytes; the kernel takes 4,096 with all folders above."""
_IN_MEMORY_BYTES = 8 * 1024**2
_CHUNK_BYTES = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Source(NamedTuple):
    """A file or folder that is packed."""

    path: Path
    name: str
    facts: os.stat_result
    link: str = ""


def pack(
    path: Path,
    name: str,
    owner: tuple[int, int] | None = None,
    *,
    most_bytes: int | None = None,
    left_out: list[str] | None = None,
) -> IO[bytes]:
    """A tar of a file or of everything in a folder, under another name.

    Links within the folder stay links. Those that lead out of it, devices, pipes and sockets are left out.

    Args:
        path: what to pack; a link is followed.
        name: what its entries begin with.
        owner: uid and gid of whoever shall own it; all in that group may change it. None: root.
        most_bytes: how much it may hold, holes included; None: as much as there is.
        left_out: takes the names of what is left out.

    Raises:
        UsageError: it cannot be read, or holds too much.
    """
    archive = empty()
    try:
        archive.writelines(pack_pieces(_find_sources(path, name, most_bytes, left_out), owner))
    except OSError as error:
        raise UsageError(f"cannot pack {path}: {error.strerror or error}") from error
    archive.seek(0)
    return archive


def pack_stream(path: Path, name: str) -> IO[bytes]:
    """The same as a stream: nothing is kept of it, and it ends when nobody reads on.

    Raises:
        UsageError: it cannot be read.
    """
    return stream_pieces(pack_pieces(_find_sources(path, name)))


def pack_pieces(sources: Iterable[Source], owner: tuple[int, int] | None = None) -> Iterator[bytes]:
    """The pieces of a tar of these, in this order; `owner`: see `pack`.

    Raises:
        UsageError: a file cannot be read, or is none any more.
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
    """As many bytes as a file had; zeros where it is shorter by now."""
    end = source.facts.st_size
    with _opened(source.path) as descriptor:
        for at in range(0, end, _CHUNK_BYTES):
            size = min(_CHUNK_BYTES, end - at)
            yield os.pread(descriptor, size, at).ljust(size, b"\0")


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A plain file, open for reading; not through a link, and a pipe holds nobody up.

    Raises:
        UsageError: it is none, or cannot be read.
    """
    try:
        descriptor = os.open(path, _READ)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError(f"cannot read {path}: it is no plain file")
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _cannot_read(path, error) from error


def _find_sources(
    path: Path, name: str, most_bytes: int | None = None, left_out: list[str] | None = None
) -> list[Source]:
    """What is packed, in the order of folders first; see `pack`."""
    sources, total = list[Source](), 0
    try:
        top = Path(os.path.realpath(path, strict=True))
        waiting = [(top, name)]
        while waiting:
            here, below = waiting.pop()
            source = _source(here, below, top)
            if source is None:
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
                waiting += [(here / one, f"{below}/{one}") for one in sorted(os.listdir(here), reverse=True)]
    except OSError as error:
        raise _cannot_read(Path(error.filename) if sources else path, error) from error
    if not sources:
        raise UsageError(f"cannot read {path}: it is neither a file nor a folder")
    return sources


def _source(path: Path, name: str, top: Path) -> Source | None:
    """A file, a folder, or a link within the folder; None for anything else."""
    facts = os.lstat(path)
    if stat.S_ISLNK(facts.st_mode):
        target = Path(os.path.realpath(path))
        inside = target.is_relative_to(top) and target != top and path != top
        return Source(path, name, facts, os.path.relpath(target, path.parent)) if inside else None
    if stat.S_ISREG(facts.st_mode):
        with _opened(path):  # whether it can be read is known before anything is packed
            return Source(path, name, facts)
    return Source(path, name, facts) if stat.S_ISDIR(facts.st_mode) else None


def unpack(archive: Readable, target: Path, *, most_bytes: int | None = None) -> list[str]:
    """Write the file or folder that a tar holds, under another name, wholly or not at all.

    A folder that is there takes what is new; files in it of the same names are replaced.

    Args:
        archive: the tar.
        target: what the file or folder is called here; a link is followed.
        most_bytes: how much may be written; None: `LIMIT_BYTES`. Never more than the disk has.

    Returns:
        The names of what is left out: what is neither file nor folder, or has a path that leads elsewhere.

    Raises:
        UsageError: it cannot be written, holds too much, or is damaged; nothing of it is here then.
    """
    with arriving(target) as new:
        limit = WriteLimit.in_folder(new.parent, most_bytes)
        try:
            return _unpack(archive, new, limit)
        except TooMuch as error:
            raise limit.error() from error


def _unpack(archive: Readable, top: Path, limit: WriteLimit) -> list[str]:
    left_out, room, longest = list[str](), limit.most_bytes, limit.most_bytes * _HOLES
    for entry in read_entries(archive, longest, MOST_ENTRIES):
        below = _below(entry.name)
        first = _file_of(entry, top)
        if below is None or not (entry.is_file or entry.is_folder or first):
            left_out.append(entry.name[:_LONGEST_PATH])
            continue
        try:
            if entry.is_folder:
                os.mkdir(top / below, 0o755)
                continue
            mode, content = (first.facts.st_mode, _content(first)) if first else (entry.mode, entry.content())
            longest -= first.facts.st_size if first else 0
            if longest < 0:
                raise limit.error()
            with closing(NewFile(top / below, executable=bool(mode & 0o100))) as file:
                for data in content:
                    file.write(data)
                    if file.written_bytes > room:
                        raise limit.error()
            room -= file.written_bytes
        except FileExistsError:
            if not entry.is_folder or not (top / below).is_dir():
                left_out.append(entry.name)  # there was something of that name before
    if not top.exists():
        what = f"{left_out[0]} is neither a file nor a folder" if left_out else "there is nothing in it"
        raise UsageError(f"nothing to copy: {what}")
    return left_out


def _file_of(entry: Entry, top: Path) -> Source | None:
    """The file that a hard link is another name of, where it has arrived before; it arrives once more."""
    below = _below(entry.link)
    path = top / below if below is not None else top
    return Source(path, entry.name, os.lstat(path)) if entry.link and stat.S_ISREG(_mode_of(path)) else None


def _below(name: str) -> PurePosixPath | None:
    """The path of an entry below the top one; None where it leads elsewhere, or cannot be one here."""
    path, encoded = PurePosixPath(name), os.fsencode(name)
    too_long = len(encoded) > _LONGEST_PATH or any(len(part) > 255 for part in encoded.split(b"/"))
    if too_long or not path.parts or path.is_absolute() or ".." in path.parts or b"\0" in encoded:
        return None
    return PurePosixPath(*path.parts[1:]) if len(path.parts) <= _DEEPEST else None


def name_of(archive: IO[bytes]) -> str:
    """What the entries of a tar begin with."""
    first = next(read_entries(archive, 1 << 62, MOST_ENTRIES), None)
    archive.seek(0)
    parts = PurePosixPath(first.name).parts if first is not None else ()
    return parts[0] if parts and parts[0] not in ("/", "..") else ""


def empty() -> IO[bytes]:
    """A file for a tar; a small one is kept in memory."""
    import tempfile  # it takes long to import, and every run imports this module

    return tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)


def stream_pieces(pieces: Iterable[bytes], close: Callable[[], object] = lambda: None) -> IO[bytes]:
    """Pieces of bytes as a stream that is read once.

    Args:
        pieces: they come when they are asked for.
        close: called when nobody reads on.
    """
    return io.BufferedReader(_Pieces(pieces, close), _CHUNK_BYTES)


class _Pieces(io.RawIOBase):
    """What `stream_pieces` reads from."""

    def __init__(self, pieces: Iterable[bytes], close: Callable[[], object]) -> None:
        self._pieces = iter(pieces)
        self._close = close
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill a buffer as far as the next piece goes; 0 at the end."""
        room = memoryview(buffer).cast("B")
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._piece = memoryview(piece)
        size = min(len(room), len(self._piece))
        room[:size] = self._piece[:size]
        self._piece = self._piece[size:]
        return size

    def close(self) -> None:
        """Ask for no more."""
        if not self.closed:
            self._close()
        super().close()


def _cannot_read(path: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot read {path}: {error.strerror or error}")


_BLOCK = tarfile.BLOCKSIZE
_PAX = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_EXTENSIONS = {
    **dict.fromkeys((tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK), 1 << 16),
    **dict.fromkeys(_PAX, 1 << 20),
}
"""What extends the next entry, and how many bytes that may have; the longest path of Linux has 4,096."""
_MOST_EXTENSIONS = 8
"""Before one entry."""
_SIZE = re.compile("[0-9]{1,19}")
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_EMPTY = (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE)
"""No content follows these, whatever size they state."""


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes; none at the end."""


class Entry:
    """A file, a folder, or something else in a tar.

    Args:
        header: what its block states.
        name: its path.
        link: the path that it states as its target.
        size: bytes of its content.
        stream: where the content comes from.
    """

    def __init__(self, header: tarfile.TarInfo, name: str, link: str, size: int, stream: Readable) -> None:
        self.name = name
        self.size = size
        self.is_file = header.type in _PLAIN and not name.endswith("/")
        self.is_folder = header.type == tarfile.DIRTYPE or (header.type in _PLAIN and name.endswith("/"))
        self.mode = header.mode
        self.link = link if header.type == tarfile.LNKTYPE else ""
        """The path of the file that a hard link is another name of."""
        self._stream = stream
        self._left = size
        self._padding = -size % _BLOCK

    def content(self) -> Iterator[bytes]:
        """The bytes of a file, once.

        Raises:
            UsageError: the tar ends before them.
        """
        while self._left:
            data = self._stream.read(min(_CHUNK_BYTES, self._left))
            if not data:
                raise UsageError(f"the archive ends in the middle of {self.name[:200]}")
            self._left -= len(data)
            yield data
        _exactly(self._stream, self._padding)
        self._padding = 0


def read_entries(stream: Readable, most_bytes: int, most_entries: int) -> Iterator[Entry]:
    """The entries of a tar, one after the other; the content of each can be read until the next is asked for.

    Args:
        stream: the tar.
        most_bytes: how much all entries together may hold, extensions included.
        most_entries: how many there may be.

    Raises:
        UsageError: there is more, or the tar is damaged.
    """
    total = count = extensions = 0
    said: dict[str, str] = {}
    while (header := _next_header(stream)) is not None:
        if header.type in _EXTENSIONS:
            extensions += 1
            if not 0 <= header.size <= _EXTENSIONS[header.type] or extensions > _MOST_EXTENSIONS:
                raise UsageError(f"the archive is damaged: it extends an entry by {header.size:,} bytes")
            total += header.size + _BLOCK
            data = _exactly(stream, header.size + -header.size % _BLOCK)[: header.size]
            said |= _read_extension(header.type, data)
            continue
        stated = said.get("size", str(header.size))
        if header.type in _EMPTY:
            stated = "0"
        if header.type == tarfile.GNUTYPE_SPARSE or not _SIZE.fullmatch(stated):
            raise UsageError(f"the archive is damaged: {header.name[:200]} has an impossible size")
        total, count, extensions = total + int(stated), count + 1, 0
        if count > most_entries:
            raise UsageError(f"it holds more than {most_entries:,} files and folders")
        name, link = said.get("path", header.name), said.get("linkpath", header.linkname)
        if total > most_bytes:
            raise TooMuch(name, total)
        said, entry = {}, Entry(header, name, link, int(stated), stream)
        yield entry
        for _ in entry.content():  # whatever nobody has read
            pass


class TooMuch(UsageError):
    """A tar holds more than it may.

    Args:
        name: the entry that is too much.
        total_bytes: what the tar holds with it.
    """

    def __init__(self, name: str, total_bytes: int) -> None:
        super().__init__(f"{name[:200]} makes it {total_bytes:,} bytes")
        self.total_bytes = total_bytes


def _next_header(stream: Readable) -> tarfile.TarInfo | None:
    """The next header; None at the end, which a block of zeros marks."""
    first = stream.read(_BLOCK)
    block = first + _exactly(stream, _BLOCK - len(first)) if first else b""
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape") if block.strip(b"\0") else None
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise UsageError("the archive is damaged: it holds something that is no header") from error


def _exactly(stream: Readable, size: int) -> bytes:
    parts = []
    while size > 0:
        data = stream.read(min(_CHUNK_BYTES, size))
        if not data:
            raise UsageError("the archive ends too early")
        size -= len(data)
        parts.append(data)
    return b"".join(parts)


def _read_extension(kind: bytes, data: bytes) -> dict[str, str]:
    """The path, the target and the size that an extension states; neither owners nor attributes are wanted."""
    if kind not in _PAX:
        key = "path" if kind == tarfile.GNUTYPE_LONGNAME else "linkpath"
        return {key: data.partition(b"\0")[0].decode("utf-8", "surrogateescape")}
    records: dict[str, str] = {}
    while data.strip(b"\0"):
        length, blank, _ = data.partition(b" ")
        end = int(length) if blank and length.isdigit() and len(length) < 8 else 0
        name, equals, value = data[len(length) + 1 : end].partition(b"=")
        if not (len(length) < end <= len(data) and equals and value.endswith(b"\n")):
            raise UsageError("the archive is damaged: it holds an extension that cannot be read")
        if name in (b"path", b"linkpath", b"size"):
            records[name.decode()] = value[:-1].decode("utf-8", "surrogateescape")
        data = data[end:]
    return records if kind != tarfile.XGLTYPE else {}  # what is meant for all entries says nothing that is used here
