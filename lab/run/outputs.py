"""Files that a run made, brought back: what is fetched from which node, where it is put, what is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from lab.errors import RecordError
from lab.node.messages.output import SHARED, Made, MadeFile, Piece
from lab.record.record_files import append_to, move_file, remove_file
from lab.words import format_bytes, format_limit, plural

if TYPE_CHECKING:
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
        self._awaited: dict[tuple[str, str], Output] = {}
        self._open: dict[tuple[str, str], BinaryIO] = {}

    def tell(self, node: str, made: Made) -> None:
        """A node says what was made there."""
        self._told[node] = made

    @property
    def told(self) -> set[str]:
        """Nodes that wait to be asked for files."""
        return set(self._told)

    def choose(self) -> Mapping[str, list[str]]:
        """The paths to fetch from each node that told of files; what there is no room for is left out."""
        chosen: dict[str, list[str]] = {node: [] for node in self._told}
        room = LIMIT_BYTES
        for node, output, path, fingerprint in sorted(_copies(self._told), key=_smallest_first):
            if not (fingerprint and _is_path(path)):
                why = "its name is not one" if not _is_path(path) else f"it is {format_bytes(output.bytes)}"
                self._leave_out(output, why)
            elif output.bytes > room:
                self._leave_out(output, f"with its {format_bytes(output.bytes)} a run has more than {_LIMIT}")
            else:
                room -= output.bytes
                chosen[node].append(path)
                self._awaited[node, path] = output
        more = sum(made.more for made in self._told.values())
        if more:
            self.left_out.append(f"{plural(more, 'file')} that were not looked at: there are too many")
        return chosen

    def take(self, node: str, piece: Piece) -> None:
        """A node sends a part of a file; what cannot be written is left out."""
        output = self._awaited.get((node, piece.path))
        if output is None:
            return
        unfinished = _unfinished(output.path)
        try:
            file = self._open.get((node, piece.path))
            if file is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                file = self._open[node, piece.path] = append_to(self.folder, unfinished, anew=True)
            file.write(piece.data)
            if piece.last:
                self._close(node, piece.path)
                move_file(self.folder, unfinished, self.folder, output.path)
                self.brought.append(output)
                del self._awaited[node, piece.path]
        except (OSError, RecordError) as error:
            self._close(node, piece.path)
            del self._awaited[node, piece.path]
            why = error.message if isinstance(error, RecordError) else error.strerror or error
            self._leave_out(output, f"it cannot be written: {why}")

    def close(self) -> None:
        """What has not arrived wholly by now is left out."""
        for (node, path), output in self._awaited.items():
            self._close(node, path)
            remove_file(self.folder, _unfinished(output.path))
            self._leave_out(output, f"{node} did not send it")
        self._awaited = {}
        self.brought.sort(key=lambda output: output.path)

    def _close(self, node: str, path: str) -> None:
        file = self._open.pop((node, path), None)
        if file is not None:
            file.close()

    def _leave_out(self, output: Output, why: str) -> None:
        self.left_out.append(f"{output.path}: {why}")


_LIMIT = format_limit(LIMIT_BYTES)


def _copies(told: Mapping[str, Made]) -> Iterable[tuple[str, Output, str, str]]:
    """What to keep, once each: the node that has it, what it is, its path there, its fingerprint."""
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
            yield node, Output(path=path, ranks=ranks, bytes=first.bytes), path, first.fingerprint
            continue
        for node, file in copies:
            output = Output(path=f"rank{file.rank}/{path}", ranks=(file.rank,), bytes=file.bytes)
            yield node, output, path, file.fingerprint


def _smallest_first(copy: tuple[str, Output, str, str]) -> tuple[int, str]:
    return copy[1].bytes, copy[1].path


def _is_path(path: str) -> bool:
    """Whether it leads to a place below a folder, whatever a node says."""
    parts = path.split("/")
    return len(path) < _LONGEST_PATH and "\0" not in path and not any(part in ("", ".", "..") for part in parts)


def _unfinished(path: str) -> str:
    above, slash, name = path.rpartition("/")
    return f"{above}{slash}.{name[:200]}.part"
