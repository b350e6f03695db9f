"""Files that a run made: found once all its processes are dead, and sent to whoever wants them back."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase

from .messages.agent import SHARED, Finish, Made, MadeFile, Piece
from .workplace import Workplace

MOST_FILES = 2000
"""So many are told of; of more, only the number."""
_MOST_LOOKED_AT = 200_000
"""Files and folders, of each of the two places."""
_DEEPEST = 64
_PIECE_BYTES = 96 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Outputs:
    """What a run made in its folder, and in the shared one where that is asked for.

    Args:
        asked: says what is wanted.
        place: knows what was shipped.
        ranks: uid -> the rank whose files those are.
    """

    def __init__(self, asked: Finish, place: Workplace, ranks: Mapping[int, int]) -> None:
        self._asked = asked
        self._place = place
        self._ranks = ranks
        self._told: set[str] = set()

    def told(self) -> Made | None:
        """Every file, the smallest first; None if there is none."""
        found = sorted(self._found(), key=lambda file: file.bytes)
        if not found:
            return None
        told, room = list[MadeFile](), self._asked.outputs_bytes
        for file in found[:MOST_FILES]:
            room -= file.bytes
            told.append(file._replace(fingerprint=self._fingerprint(file.path)) if room >= 0 else file)
        self._told = {file.path for file in told}
        return Made(self._asked.run, tuple(told), len(found) - len(told))

    def pieces(self, paths: Iterable[str]) -> Iterator[Piece]:
        """The contents of files that were told of, in pieces; of one that cannot be read, nothing or no last piece."""
        for path in self._told.intersection(paths):
            with suppress(OSError):
                for data, last in self._contents(path):
                    yield Piece(self._asked.run, path, data, last)

    def _found(self) -> Iterator[MadeFile]:
        patterns, place = self._asked.outputs, self._place
        if patterns is None or not self._ranks:
            return
        for folder, prefix in (place.folder, ""), (self._asked.shared, SHARED):
            for below, facts in _files(folder, unasked=bool(patterns)) if folder else ():
                old = facts.st_ctime_ns <= place.shipped_at and (prefix or below in place.shipped)
                foreign = facts.st_nlink > 1 and facts.st_uid not in self._ranks  # a link to a file of the image
                if not old and not foreign and _is_named(below, patterns):
                    rank = self._ranks.get(facts.st_uid, min(self._ranks.values()))
                    yield MadeFile(prefix + below, rank, facts.st_size, executable=bool(facts.st_mode & 0o100))

    def _fingerprint(self, path: str) -> str:
        import hashlib  # loads OpenSSL: only where something was made

        digest = hashlib.sha256()
        try:
            for data, _ in self._contents(path):
                digest.update(data)
        except OSError:
            return ""
        return digest.hexdigest()

    def _contents(self, path: str) -> Iterator[tuple[bytes, bool]]:
        """Pieces of a file, and whether each is the last; as long as it is when it is opened."""
        descriptor = self._open(path)
        try:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise FileNotFoundError(path)
            left = facts.st_size
            while True:
                data = os.read(descriptor, min(_PIECE_BYTES, left))
                left -= len(data)
                last = left <= 0 or not data
                yield data, last
                if last:
                    return
        finally:
            os.close(descriptor)

    def _open(self, path: str) -> int:
        """A descriptor; no part of the path may be a link."""
        shared = bool(self._asked.shared) and path.startswith(SHARED)
        *folders, name = path[len(SHARED) if shared else 0 :].split("/")
        here = os.open(self._asked.shared if shared else self._place.folder, _FOLDER)
        try:
            for folder in folders:
                inner = os.open(folder, _FOLDER, dir_fd=here)
                os.close(here)
                here = inner
            return os.open(name, _FILE, dir_fd=here)
        finally:
            os.close(here)


def _files(top: str, *, unasked: bool) -> Iterator[tuple[str, os.stat_result]]:
    """Every plain file below a folder, and what it is; not what lies too deep, or cannot be looked into.

    What programs leave `unasked` (caches, what is hidden) is passed over unless somebody says that it is wanted.
    Nothing where a script has put a link in the place of the folder.
    """
    waiting, seen = [] if os.path.islink(top) else [""], 0
    while waiting:
        where = waiting.pop()
        with suppress(OSError), os.scandir(os.path.join(top, where)) as entries:
            for entry in entries:
                seen += 1
                if seen > _MOST_LOOKED_AT:
                    return
                if not unasked and (entry.name[0] == "." or entry.name == "__pycache__" or entry.name.endswith(".pyc")):
                    continue
                below = f"{where}{entry.name}"
                facts = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(facts.st_mode) and below.count("/") < _DEEPEST:
                    waiting.append(f"{below}/")
                elif stat.S_ISREG(facts.st_mode):
                    yield below, facts


def _is_named(below: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern names a file, by its name or path, or a folder that it is in."""
    if not patterns:
        return True
    parts = below.split("/")
    outer = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in (*outer, parts[-1]))
