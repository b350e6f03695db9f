"""Files that a run made, brought back: what is fetched from which node, where it is put, what is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lab.errors import RecordError
from lab.node.messages.agent import SHARED, Made, MadeFile, Piece
from lab.record.record_files import move_file
from lab.words import format_bytes, format_limit, plural

if TYPE_CHECKING:
    from lab.engine.archive import NewFile
    from lab.record.result import Output

LIMIT_BYTES = 64 * 1024**2
"""What is brought back of one run; the largest files are left out."""
_LONGEST_PATH = 1000


class Outputs:
    """What the nodes of one run tell of, and what is fetched of it.

    A file that several ranks made alike is kept once, by its path; any other below `rank<N>`, by its path there.

    Args:
        folder: where they are put; made when there is something.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.brought: list[Output] = []
        """What is there now."""
        self.left_out: list[str] = []
        """What is not, each as what it is and why."""
        self._told: dict[str, Made] = {}
        self._awaited: dict[tuple[str, str], tuple[Output, bool]] = {}
        """What was asked for, and whether its owner may execute it."""
        self._numbers: dict[tuple[str, str], int] = {}
        self._open: dict[tuple[str, str], NewFile] = {}
        self._unfinished: Path | None = None
        """The folder of files that have not arrived wholly."""

    def hear(self, node: str, message: Made | Piece) -> None:
        """A node says what was made there, or sends a part of a file."""
        if isinstance(message, Made):
            self._told[node] = message
        else:
            self._take(node, message)

    @property
    def told(self) -> set[str]:
        """Nodes that wait to be asked for files."""
        return set(self._told)

    def choose(self) -> Mapping[str, list[str]]:
        """The paths to fetch from each node that told of files; what there is no room for is left out."""
        chosen: dict[str, list[str]] = {node: [] for node in self._told}
        room, taken = LIMIT_BYTES, set[str]()
        for node, output, file in sorted(_copies(self._told), key=_smallest_first):
            if not (file.fingerprint and _is_path(file.path)):
                why = "its name is not one" if not _is_path(file.path) else f"it is {format_bytes(output.bytes)}"
                self._leave_out(output, why)
            elif output.bytes > room:
                self._leave_out(output, f"with its {format_bytes(output.bytes)} a run has more than {_LIMIT}")
            elif output.path in taken:
                self._leave_out(output, "there is another one of that name")
            else:
                room -= output.bytes
                taken.add(output.path)
                chosen[node].append(file.path)
                self._awaited[node, file.path] = output, file.executable
        more = sum(made.more for made in self._told.values())
        if more:
            self.left_out.append(f"{plural(more, 'file')} that were not looked at: there are too many")
        return chosen

    def _take(self, node: str, piece: Piece) -> None:
        """A node sends a part of a file; what cannot be written is left out."""
        key = node, piece.path
        if key not in self._awaited:
            return
        from lab.engine.archive import NewFile  # only where something is brought

        output, executable = self._awaited[key]
        try:
            if key not in self._open:
                self._open[key] = NewFile(self._unfinished_path(key), executable=executable)
            file = self._open[key]
            file.write(piece.data)
            if file.size_bytes > output.bytes:
                self._give_up(key, f"{node} sent more of it than it has")
            elif piece.last:
                file.close()
                name = self._unfinished_path(key).relative_to(self.folder).as_posix()
                move_file(self.folder, name, self.folder, output.path)
                del self._awaited[key], self._open[key]
                self.brought.append(output)
        except (OSError, RecordError) as error:
            why = error.message if isinstance(error, RecordError) else error.strerror or error
            self._give_up(key, f"it cannot be written: {why}")

    def close(self) -> None:
        """What has not arrived wholly by now is left out."""
        for node, path in tuple(self._awaited):
            self._give_up((node, path), f"{node} did not send it")
        if self._unfinished is not None:
            import shutil

            shutil.rmtree(self._unfinished, ignore_errors=True)
        self.brought.sort(key=lambda output: output.path)

    def _unfinished_path(self, key: tuple[str, str]) -> Path:
        if self._unfinished is None:
            import tempfile

            self.folder.mkdir(parents=True, exist_ok=True)
            self._unfinished = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=self.folder))
        return self._unfinished / str(self._numbers.setdefault(key, len(self._numbers)))

    def _give_up(self, key: tuple[str, str], why: str) -> None:
        """Leave out a file that was asked for."""
        file = self._open.pop(key, None)
        if file is not None:
            with suppress(OSError):
                file.close()
            with suppress(OSError):
                self._unfinished_path(key).unlink()
        output, _ = self._awaited.pop(key)
        self._leave_out(output, why)

    def _leave_out(self, output: Output, why: str) -> None:
        self.left_out.append(f"{output.path}: {why}")


_LIMIT = format_limit(LIMIT_BYTES)


def _copies(told: Mapping[str, Made]) -> Iterable[tuple[str, Output, MadeFile]]:
    """What to keep, once each: the node that has it, what it is, what the node says of it."""
    from lab.record.result import Output

    by_path: dict[str, list[tuple[str, MadeFile]]] = {}
    for node, made in told.items():
        for file in made.files:
            by_path.setdefault(file.path, []).append((node, file))
    for path, copies in by_path.items():
        fingerprints = {file.fingerprint for _, file in copies}
        ranks = tuple(sorted({file.rank for _, file in copies}))
        node, first = copies[0]
        alike = len(fingerprints) == 1 and first.fingerprint and (len(copies) > 1 or path.startswith(SHARED))
        if alike and not path.startswith("rank"):
            yield node, Output(path=path, ranks=ranks, bytes=first.bytes), first
            continue
        for node, file in copies:
            yield node, Output(path=f"rank{file.rank}/{path}", ranks=(file.rank,), bytes=file.bytes), file


def _smallest_first(copy: tuple[str, Output, MadeFile]) -> tuple[int, str]:
    return copy[1].bytes, copy[1].path


def _is_path(path: str) -> bool:
    """Whether it leads to a place below a folder, whatever a node says."""
    parts = path.split("/")
    return len(path) < _LONGEST_PATH and "\0" not in path and not any(part in ("", ".", "..") for part in parts)
