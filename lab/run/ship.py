"""Files of a run: pack the scenario's folder for the nodes, and fetch what ranks created."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.engine.new_file import NewFile
from lab.errors import LabError, RecordError, UsageError
from lab.feature import find_hook
from lab.node.contents import read_entries, write_entries, write_header
from lab.node.files import READ_FLAGS
from lab.node.messages.agent import MOST_FILES, SHARED, Content, Filling, Folder, Lacks, Made, MadeFile, Piece
from lab.record.record_files import move_file
from lab.run.snapshot import DATA_HINT, Snapshot
from lab.run.snapshot import Content as SnapshotContent
from lab.words import format_bytes, format_count, format_limit, group_pairs, join_words

if TYPE_CHECKING:
    from lab.record.result import Output

# -- to the nodes

_CHUNK_BYTES = 1 << 18
_INLINE_BYTES = 1 << 18
"""Changed contents up to this size are sent without asking the nodes what they lack."""
_LARGE_BYTES = 1 << 30
_MUCH_BYTES = 64 << 20
"""From this size on, the lab announces a transfer."""
_SECOND_S = 1.0


class Shipment:
    """Makes the nodes of a run have the folder of its script: sends what changed, and what a node asks for.

    Args:
        snapshot: of the folder.
        run: name of the run.
        send: sends messages to the agent of a node.
        progress: reports a transfer that takes long.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        run: str,
        send: Callable[..., object],
        progress: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._snapshot = snapshot
        self._run = run
        self._send = send
        self._progress = progress
        self._inline = tuple(self._stream(snapshot.contents)) if snapshot.changed_bytes <= _INLINE_BYTES else ()
        self._is_announced = False
        self._senders: dict[str, str] = {}
        """By store: the node that its contents are sent to."""
        self._waiting: dict[str, list[str]] = {}
        """By store: other nodes that wait for these contents."""

    def begin(self, node: str) -> None:
        """Tell a node what the folder has to be."""
        self._send(node, *self._inline, self._describe(self._snapshot.base))

    def _describe(self, base: str) -> Folder:
        snapshot = self._snapshot
        state = (snapshot.key, snapshot.token)
        if not base:
            return Folder(self._run, *state, entries=snapshot.all_entries())
        return Folder(self._run, *state, base, write_entries(snapshot.entries.items()), snapshot.removed)

    def handle_message(self, node: str, message: Any) -> None:
        """Send a node what it lacks; nodes that share a store get it through one of them."""
        if not isinstance(message, Lacks):
            return
        store = message.store
        if message.everything:
            self._send(node, self._describe(""))
        elif not message.digests:
            if self._senders.get(store) == node:
                for other in self._waiting.pop(store, ()):
                    self._send(other, Content(self._run, b"", last=True))
        elif store not in self._waiting or self._senders[store] == node:
            self._senders[store] = node
            self._waiting.setdefault(store, [])
            self._transfer(node, message.digests)
        else:
            self._waiting[store].append(node)

    def _announce(self, digests: Sequence[str]) -> None:
        """Report how much is sent now, if it is much."""
        sizes = [
            (os.path.getsize(one.path) if one.data is None else len(one.data), os.path.basename(one.path))
            for _, one in self._snapshot.find_contents(digests)
            if one.data is not None or os.path.exists(one.path)
        ]
        total, (most, name) = sum(size for size, _ in sizes), max(sizes, default=(0, ""))
        if total >= _MUCH_BYTES:
            count = format_count(len(digests), "changed file")
            largest = f"the largest is {name} ({format_bytes(most)})"
            self._progress(f"sending {format_bytes(total)} in {count} to the nodes; {largest}; {DATA_HINT}")

    def _transfer(self, node: str, digests: Sequence[str]) -> None:
        if not self._is_announced:
            self._is_announced = True
            self._announce(digests)
        sent, reported = 0, time.monotonic()
        for content in self._stream(digests):
            self._send(node, content)
            sent += _CHUNK_BYTES
            if time.monotonic() - reported > _SECOND_S:
                reported = time.monotonic()
                self._progress(f"sending {len(digests):,} files to {node}: {format_bytes(sent)}")

    def _stream(self, digests: Iterable[str], *, for_check: bool = False) -> Iterator[Content]:
        """Yield contents as messages to an agent."""
        buffer = bytearray()
        for digest, content in self._snapshot.find_contents(digests):
            for piece in _read_content(digest, content):
                buffer += piece
                while len(buffer) >= _CHUNK_BYTES:
                    yield Content(self._run, bytes(buffer[:_CHUNK_BYTES]), for_check=for_check)
                    del buffer[:_CHUNK_BYTES]
        yield Content(self._run, bytes(buffer), last=True, for_check=for_check)

    def messages_for_check(self) -> Iterator[Content | Folder]:
        """Yield all of it as messages to the agent that runs the check; ranks never see this folder."""
        entries = self._snapshot.all_entries()
        yield from self._stream({entry.digest for entry in read_entries(entries).values()}, for_check=True)
        yield Folder(self._run, self._snapshot.key, self._snapshot.token, entries=entries, for_check=True)


def _read_content(digest: str, content: SnapshotContent) -> Iterator[bytes]:
    """Yield a content with its header, with as many bytes as it has at the beginning."""
    if content.data is not None:
        yield write_header(digest, len(content.data)) + content.data
        return
    reading = UsageError.on_os_error(f"cannot read {content.path}")
    with reading, open(os.open(content.path, READ_FLAGS), "rb", buffering=0) as file:
        left = os.fstat(file.fileno()).st_size
        yield write_header(digest, left)
        while left > 0:
            data = file.read(min(left, _CHUNK_BYTES)) or bytes(min(left, _CHUNK_BYTES))
            left -= len(data)
            yield data


def warnings_of(snapshot: Snapshot) -> Iterator[str]:
    """Yield what the user may not expect of a folder: files that are not shipped, and a large amount of data."""
    if snapshot.left_out:
        others = f" (and {len(snapshot.left_out) - 1} more)" if len(snapshot.left_out) > 1 else ""
        yield f"warning: not shipped: {min(snapshot.left_out)}{others}"
    if snapshot.bytes > _LARGE_BYTES:
        first = sorted(snapshot.large, reverse=True)[:3]
        largest = join_words(f"{path} ({format_bytes(size)})" for size, path in first)
        yield (
            f"warning: the script's folder has {format_bytes(snapshot.bytes)} in {snapshot.files:,} files, which each "
            f"node gets once; the largest: {largest}; {DATA_HINT}"
        )


# -- from the nodes

_LONGEST_PATH = 1000
LIMIT_BYTES = 4 << 30
"""Most bytes that come back from a run; beyond this, the largest files are left out."""
ANNOUNCED_BYTES = LIMIT_BYTES // 5 * 4
"""From this size on, a run's files are announced while it runs."""
_SPARE_BYTES, _SPARE_PART = 1 << 30, 10
"""Bytes that stay free on the disk of the record, unless this part of it is less: a tenth."""
_DIRECT_BYTES = 16 << 20
"""From this size on, the engine copies a file out of a container: that is faster than through the agent."""
_MOST_NAMED = 1000
"""Of the files that are left out; the others are only counted."""
_MORE = "`outputs:` in the scenario selects files"


class Outputs:
    """Files that the nodes of one run created, and those that are fetched.

    A file that several ranks created alike is kept once, under its path; any other is kept below `rank<N>`.

    Args:
        folder: where to put the files; created for the first one.
        progress: reports a transfer that takes long, and what does not come back.
    """

    def __init__(self, folder: Path, progress: Callable[[str], object] = lambda _: None) -> None:
        self.folder = folder
        self.fetched: list[Output] = []
        """Files that have arrived."""
        self.left_out: list[str] = []
        """Files that have not, each with the reason."""
        self.nodes: set[str] = set()
        """Nodes that wait for a request for files."""
        self.is_interrupted = False
        """Whether the user interrupted the transfer."""
        self._progress = progress
        self._made: dict[tuple[str, str], MadeFile] = {}
        """By node and path there."""
        self._unlisted = 0
        self._awaited: dict[tuple[str, str], tuple[Output, bool, str]] = {}
        """Requested files by node and path there: the output, whether its owner may execute it, its temporary name."""
        self._open: dict[tuple[str, str], NewFile] = {}
        self._unfinished: Path | None = None
        """The folder of files that have not arrived completely."""
        self._folders: dict[str, str] = {}
        """By node: the folder of its files that its engine can read."""
        self._direct: list[tuple[str, str]] = []
        """Requested files that the engine can copy."""
        self._requested_bytes = self._arrived_bytes = 0
        self._reported = time.monotonic()

    def handle_message(self, node: str, message: Any) -> None:
        """Handle a node's list of files, or a piece of a file."""
        if isinstance(message, Made):
            known = message.files[: MOST_FILES - len(self._made)]
            self._made.update(((node, file.path), file) for file in known)
            self._unlisted += message.omitted + len(message.files) - len(known)
            self.nodes.add(node)
            self._folders[node] = message.folder
        elif isinstance(message, Piece) and (node, message.path) in self._awaited:
            self._add_piece((node, message.path), message)
        elif isinstance(message, Filling):
            self._progress(
                f"warning: the run has made files of {format_bytes(message.bytes)} on {node}; at most "
                f"{format_limit(LIMIT_BYTES)} of a run come back, the smallest files first; {_MORE}"
            )

    def choose(self) -> Mapping[str, list[str]]:
        """Return the paths to fetch from each node; leave out files beyond the limit."""
        chosen: dict[str, list[str]] = {node: [] for node in self.nodes}
        self._reported = time.monotonic()
        disk = os.statvfs(next(folder for folder in (self.folder, *self.folder.parents) if folder.exists()))
        free_bytes = max(
            0, disk.f_bavail * disk.f_frsize - min(_SPARE_BYTES, disk.f_blocks * disk.f_frsize // _SPARE_PART)
        )
        capacity_bytes, used_paths = min(LIMIT_BYTES, free_bytes), set[str]()
        limit = format_limit(LIMIT_BYTES)
        if free_bytes < LIMIT_BYTES:
            limit = f"{format_bytes(free_bytes)} (what the record's disk has left for a run)"
        for node, output, file in sorted(_list_copies(self._made), key=lambda copy: (copy[1].bytes, copy[1].path)):
            if not _is_path(file.path):
                self._leave_out(output, "its name is not a valid path")
            elif output.bytes > capacity_bytes:
                self._leave_out(output, f"its {format_bytes(output.bytes)} exceed the limit of {limit}")
            elif output.path in used_paths:
                self._leave_out(output, "another file has its name")
            else:
                capacity_bytes -= output.bytes
                self._requested_bytes += output.bytes
                used_paths.add(output.path)
                is_direct = output.bytes >= _DIRECT_BYTES and file.path.isascii() and not file.path.startswith(SHARED)
                if is_direct and self._folders[node]:
                    self._direct.append((node, file.path))
                else:
                    chosen[node].append(file.path)
                self._awaited[node, file.path] = output, file.executable, str(len(self._awaited))
        if missing := len(self.left_out) + self._unlisted:
            self._progress(
                f"warning: {format_count(missing, 'file')} of this run will not come back; allowed: {limit} and "
                f"{MOST_FILES:,} files; {_MORE}"
            )
        return chosen

    def copy(self, read: Callable[[str, str], Iterator[bytes]], keep_alive: Callable[[], object]) -> None:
        """Copy large files out of containers.

        Args:
            read: returns the pieces of a tar of a file of a node.
            keep_alive: called repeatedly meanwhile.
        """
        for node, path in self._direct:
            output, _, name = self._awaited[node, path]
            try:
                target = self._make_folder() / name
                pieces = self._count(read(node, f"{self._folders[node]}/{path}"), keep_alive)
                find_hook("unpack_tar")(pieces, target, most_bytes=output.bytes)
                facts = target.lstat()
                if not stat.S_ISREG(facts.st_mode) or facts.st_size != output.bytes:
                    self._abandon((node, path), f"{node} sent other bytes than it reported")
                    continue
                self._keep((node, path))
            except (OSError, LabError) as error:
                self._abandon((node, path), f"it cannot be copied: {getattr(error, 'message', error)}")

    def _count(self, pieces: Iterable[bytes], keep_alive: Callable[[], object]) -> Iterator[bytes]:
        with suppress(GeneratorExit):
            for piece in pieces:
                self._show_progress(len(piece))
                keep_alive()
                yield piece

    def _make_folder(self) -> Path:
        """Return the folder for files that have not arrived completely."""
        if self._unfinished is None:
            import tempfile

            self.folder.mkdir(parents=True, exist_ok=True)
            self._unfinished = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=self.folder))
        return self._unfinished

    def _keep(self, key: tuple[str, str]) -> None:
        """Move a complete file to its path."""
        output, _, name = self._awaited[key]
        move_file(self.folder, f"{self._make_folder().name}/{name}", self.folder, output.path)
        self.fetched.append(output)
        del self._awaited[key]

    def _show_progress(self, size: int) -> None:
        self._arrived_bytes += size
        if time.monotonic() - self._reported > _SECOND_S:
            self._reported = time.monotonic()
            percent = min(100, 100 * self._arrived_bytes // max(1, self._requested_bytes))
            self._progress(f"fetching {format_bytes(self._requested_bytes)} of the run's files: {percent} %")

    def interrupt(self) -> None:
        """Leave out what has not arrived yet, because the user interrupted the transfer."""
        self.is_interrupted = True
        for key in tuple(self._awaited):
            self._abandon(key, "you interrupted the transfer")

    def close(self) -> None:
        """Leave out files that have not arrived completely."""
        for node, path in tuple(self._awaited):
            self._abandon((node, path), f"{node} did not send it")
        if self._unlisted:
            self.left_out.append(f"{format_count(self._unlisted, 'more file')}: there are too many")
        if self._unfinished is not None:
            import shutil

            shutil.rmtree(self._unfinished, ignore_errors=True)
        self.fetched.sort(key=lambda output: output.path)

    def _add_piece(self, key: tuple[str, str], piece: Piece) -> None:
        """Write a piece of a file; leave the file out if this fails."""
        output, executable, name = self._awaited[key]
        try:
            if key not in self._open:
                self._open[key] = NewFile(self._make_folder() / name, executable=executable)
            file = self._open[key]
            file.write(piece.data)
            if file.size_bytes > output.bytes or (piece.last and file.size_bytes < output.bytes):
                self._abandon(key, f"{key[0]} sent other bytes than it reported")
            elif piece.last:
                file.close()
                self._keep(key)
                del self._open[key]
        except (OSError, RecordError) as error:
            why = error.message if isinstance(error, RecordError) else error.strerror or error
            self._abandon(key, f"it cannot be written: {why}")
        self._show_progress(len(piece.data))

    def _abandon(self, key: tuple[str, str], why: str) -> None:
        """Leave out a requested file; `close` removes what has arrived of it."""
        if file := self._open.pop(key, None):
            with suppress(OSError):
                file.close()
        self._leave_out(self._awaited.pop(key)[0], why)

    def _leave_out(self, output: Output, why: str) -> None:
        if len(self.left_out) < _MOST_NAMED:
            self.left_out.append(f"{output.path}: {why}")
        else:
            self._unlisted += 1


def _list_copies(made: Mapping[tuple[str, str], MadeFile]) -> Iterator[tuple[str, Output, MadeFile]]:
    """Yield each file to keep once: the node that has it, the output, and the node's description of it."""
    from lab.record.result import Output

    for path, copies in group_pairs((path, (node, file)) for (node, path), file in made.items()).items():
        node, first = copies[0]
        are_alike = len({(file.bytes, file.fingerprint) for _, file in copies}) == 1
        if (
            are_alike
            and (first.fingerprint if len(copies) > 1 else path.startswith(SHARED))
            and not path.startswith("rank")
        ):
            ranks = tuple(sorted({file.rank for _, file in copies}))
            yield node, Output(path=path, ranks=ranks, bytes=first.bytes), first
        else:
            for node, file in copies:
                yield node, Output(path=f"rank{file.rank}/{path}", ranks=(file.rank,), bytes=file.bytes), file


def _is_path(path: str) -> bool:
    """Return whether the path leads below a folder: nodes may send any path."""
    parts = path.split("/")
    return len(path) < _LONGEST_PATH and "\0" not in path and not any(part in ("", ".", "..") for part in parts)
