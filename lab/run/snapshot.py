"""What a script's folder holds, and what changed in it since the last run, without reading unchanged files."""

from __future__ import annotations

import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lab.engine.ownership import short_digest, state_folder
from lab.errors import UsageError
from lab.node.contents import EXECUTABLE, FILE, LINK, Entry, new_digest, write_entries
from lab.node.files import READ_FLAGS

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_LONGEST_IGNORE, _MOST_PATTERNS = 64 * 1024, 1000
"""Limits of a file of patterns: every path is matched against every pattern."""
_DEEPEST = 100
_SKIPPED_FOLDERS = {"__pycache__", "node_modules", "venv", "site-packages"}
"""Never shipped, nor are folders whose name begins with a dot."""
_SMALL_FILES, _SMALL_BYTES = 64, 1 << 18
"""A folder within these limits has no index, unless rules exclude files: all of it is read for each run."""
_READ_BYTES = 1 << 20
_MEMORY_BYTES = 64 << 20
"""Contents up to this size are kept in memory: they are probably sent next."""
_RACY_NS = 20_000_000
"""A file that changed so shortly before it was read may change again without another time of change."""
_MOST_INDEXES = 100
DATA_HINT = (
    "name data folders with `data:` or --data NAME=FOLDER: the lab does not ship these, and ranks read them at "
    "$LAB_DATA/NAME"
)
_IGNORED, _ENTERED = "-", "+"
_IGNORE_FILES = (".gitignore", ".labignore")
_RULES = "//rules"
_SECOND_S = 1.0


class Content(NamedTuple):
    """Where a content is."""

    path: str
    data: bytes | None = None
    """The content itself, if it is known."""


@dataclass(repr=False, eq=False)
class Snapshot:
    """The shipped part of a folder at one moment."""

    key: str = ""
    """Identifies the folder, and how it is read."""
    token: str = ""
    """Identifies this state."""
    base: str = ""
    """The state before, that the changes apply to; empty if it is unknown."""
    entries: dict[str, Entry] = field(default_factory=dict)
    """By path below the folder; without a base: only those that changed."""
    removed: tuple[str, ...] = ()
    """Paths of the base that are not there any more."""
    contents: dict[str, Content] = field(default_factory=dict)
    """By digest: those of entries that changed."""
    left_out: list[str] = field(default_factory=list)
    """Files that a script might miss, each as its path below the folder and its kind."""
    files: int = 0
    bytes: int = 0
    large: list[tuple[int, str]] = field(default_factory=list)
    """Bytes and path of each large file."""
    _top: Path = Path()
    _added: Mapping[str, Path] = field(default_factory=dict)
    records: list[str] = field(default_factory=list)
    """All entries as text."""
    index: str = ""
    """What to write into the index; empty: nothing."""

    @property
    def changed_bytes(self) -> int:
        """Size of the contents that changed, as far as they are in memory; others count as infinite."""
        return sum(_SMALL_BYTES if one.data is None else len(one.data) for one in self.contents.values())

    def all_entries(self) -> str:
        """Return all entries as text, see `lab.node.contents.write_entries`."""
        return "//".join(self.records)

    def find_contents(self, digests: Iterable[str]) -> Iterator[tuple[str, Content]]:
        """Yield these digests, each with its content."""
        wanted = set(digests)
        for digest in wanted & self.contents.keys():
            yield digest, self.contents[digest]
        wanted -= self.contents.keys()
        for record in self.records if wanted else ():
            kind, _, digest, path = record.split("/", 3)
            if digest in wanted:
                wanted.remove(digest)
                yield (
                    digest,
                    _content_of_link(self._top, path)
                    if kind == LINK
                    else Content(str(self._added.get(path) or self._top / path)),
                )

    def save(self) -> None:
        """Write the index, so that the next run reads only what changes from now on."""
        if not self.index:
            return
        path = _index_path(self.key)
        with suppress(OSError):  # it is only slower without
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = path.with_name(f"{path.name}.{os.getpid()}")
            data = self.index.encode("utf-8", "surrogateescape")
            new.write_bytes(b"%d\0%b" % (zlib.crc32(data), data))
            new.rename(path)
            for old in sorted(path.parent.iterdir(), key=lambda one: one.stat().st_mtime)[:-_MOST_INDEXES]:
                old.unlink()


def read_snapshot(
    folder: Path,
    data: Iterable[Path] = (),
    added: Mapping[str, Path] | None = None,
    *,
    all_files: bool = False,
    progress: Callable[[str], object] = lambda _: None,
) -> Snapshot:
    """Read what is shipped of a folder: everything but caches, virtual environments, and hidden folders.

    A link to something in the folder is shipped as a link; no link is followed. Files named by `.gitignore`, there or
    in folders above in the same repository, are left out. A file `.labignore` in the folder, with the same patterns,
    excludes more; there, comments may follow a pattern. Folders of `data` are excluded too: nodes have them.

    Args:
        folder: to read.
        data: folders that nodes have.
        added: other files, by their paths below the folder.
        all_files: whether `.gitignore` excludes nothing.
        progress: reports a reading that takes long.

    Raises:
        UsageError: folders are nested too deep, or a file is unreadable. The message names it.
    """
    return _Reader(Path(os.path.realpath(folder)), data, added or {}, all_files, progress).read()


class _Reader:
    def __init__(
        self,
        top: Path,
        data: Iterable[Path],
        added: Mapping[str, Path],
        all_files: bool,
        progress: Callable[[str], object],
    ) -> None:
        self._top, self._added = top, added
        real = (os.path.realpath(one) for one in data)
        self._data = {os.path.relpath(one, top) for one in real if one.startswith(f"{top}/")}
        self._all_files, self._progress = all_files, progress
        self._began, self._reported = time.time_ns(), time.monotonic()
        self._key = "\n".join([str(top), *sorted(self._data), *(["all"] if all_files else [])])
        self._token, self._known = _read_index(self._key)
        self._kept: dict[str, str] = {}
        """The new index, without what has to be read."""
        self._decide_again = False
        """Whether what the index has is decided again, because rules changed."""
        self._unread: list[tuple[str, os.stat_result, str]] = []
        """Files to read: path, status, and key in the index."""
        self._snapshot = Snapshot(key=self._key, _top=top, _added=added)
        self._links: list[str] = []

    def read(self) -> Snapshot:
        self._walk()
        rules = "\n".join(sorted(self._rules))
        if self._known and self._known.get(_RULES) != rules:  # what was left out may belong to it now, and the reverse
            self._known = {key: value for key, value in self._known.items() if value not in (_IGNORED, _ENTERED)}
            self._decide_again = True
            self._walk()
        self._kept[_RULES] = rules
        self._read_files()
        return self._snapshot

    # -- the tree

    def _walk(self) -> None:
        """List everything that is shipped: what the index has, and what has to be read."""
        self._kept, self._unread, self._rules = {}, [], set[str]()
        self._links = []
        self._snapshot.left_out, self._snapshot.large, self._snapshot.bytes = [], [], 0
        ignores = [] if self._all_files else [*self._ignores_above()]
        waiting: list[tuple[str, list[_Ignore]]] = [("", ignores)]
        own = self._top / ".labignore"
        self._labignore = [_Ignore(own, "")] if own.exists() else []
        while waiting:
            folder, ignores = waiting.pop()
            if folder.count("/") >= _DEEPEST:
                start = "/".join(folder.split("/")[:3])
                raise UsageError(f"{self._top / start} has folders more than {_DEEPEST} deep", DATA_HINT)
            try:
                waiting += self._read_folder(folder, ignores)
            except OSError as error:
                if folder and isinstance(error, FileNotFoundError):  # it was removed meanwhile
                    continue
                raise UsageError(f"cannot read {self._top / folder}: {error.strerror or error}", DATA_HINT) from error
        for path, file in self._added.items():
            facts = os.stat(file)
            key = _key_of(path, facts)
            if (record := self._known.get(key)) is not None:
                self._kept[key] = record
            else:
                self._unread.append((path, facts, key))

    def _read_folder(self, folder: str, ignores: list[_Ignore]) -> Iterator[tuple[str, list[_Ignore]]]:
        """Handle the files of a folder; yield its folders, with the rules that apply there."""
        prefix, top = (f"{folder}/" if folder else ""), f"{self._top}/{folder}"
        known, kept, decide_again = self._known, self._kept, self._decide_again
        with os.scandir(top) as scanned:
            entries = list(scanned)
        for entry in entries:
            if entry.name in _IGNORE_FILES:
                facts = entry.stat(follow_symlinks=False)
                self._rules.add(f"{prefix}{entry.name}/{facts.st_size}/{facts.st_mtime_ns}/{facts.st_ino}")
                if entry.name == ".gitignore" and not self._all_files:
                    ignores = [*ignores, _Ignore(Path(entry.path), prefix)]
        total = 0
        for entry in entries:
            name = entry.name
            path = prefix + name
            if entry.is_dir(follow_symlinks=False):
                if name in _SKIPPED_FOLDERS or name[0] == ".":
                    continue
                key = f"{path}//{_ENTERED}"
                if key in known or self._may_ship(path, ignores, is_folder=True):
                    kept[key] = _ENTERED
                    yield path, ignores
                continue
            try:
                facts = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # it was removed meanwhile
                continue
            key = _key_of(path, facts)
            if (record := known.get(key)) is None or decide_again:
                if name.endswith((".pyc", ".pyo")) or not self._may_ship(path, ignores, is_folder=False):
                    continue
                if not stat.S_ISREG(facts.st_mode):
                    self._add_special(path, entry, facts)
                    continue
            if record is None:
                self._unread.append((path, facts, key))
            else:
                kept[key] = record
            total += facts.st_size
            if facts.st_size > _READ_BYTES:
                self._snapshot.large.append((facts.st_size, path))
        self._snapshot.bytes += total

    def _add_special(self, path: str, entry: os.DirEntry[str], facts: os.stat_result) -> None:
        """Add a link; leave out a pipe, a socket, or a device, and a link to a folder that is skipped."""
        if not stat.S_ISLNK(facts.st_mode):
            mode = facts.st_mode
            kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
            self._snapshot.left_out.append(f"{path} is {kind}")
            return
        if (entry.name in _SKIPPED_FOLDERS or entry.name[0] == ".") and entry.is_dir():
            return
        target = Path(os.path.realpath(self._top / path))
        if not target.is_relative_to(self._top):
            self._snapshot.left_out.append(f"{path} is a link that leads out of the folder, to {target}")
            return
        content = _content_of_link(self._top, path)
        record = write_entries([(path, Entry(LINK, 0, new_digest(content.data or b"").hexdigest()))])
        self._kept[f"{path}//{LINK}"] = record
        self._links.append(path)

    # -- rules

    def _ignores_above(self) -> Iterator[_Ignore]:
        """Yield the rules in folders above, up to the root of the repository; none outside of a repository."""
        rules = []
        for folder in self._top.parents if not (self._top / ".git").exists() else ():
            file = folder / ".gitignore"
            if file.is_file():
                facts = os.lstat(file)
                self._rules.add(f"{file}/{facts.st_size}/{facts.st_mtime_ns}/{facts.st_ino}")
                rules.append(_Ignore(file, "", below=f"{self._top.relative_to(folder)}/"))
            if (folder / ".git").exists():
                yield from reversed(rules)
                return

    def _may_ship(self, path: str, ignores: list[_Ignore], *, is_folder: bool) -> bool:
        if path in self._data:
            return False
        if f"{path}//{_IGNORED}" in self._known or not self._is_wanted(path, ignores, is_folder=is_folder):
            self._kept[f"{path}//{_IGNORED}"] = _IGNORED
            return False
        return True

    def _is_wanted(self, path: str, ignores: list[_Ignore], *, is_folder: bool) -> bool:
        for ignore in (*self._labignore, *reversed(ignores)):
            if (is_ignored := ignore.decide(path, is_folder)) is not None:
                return not is_ignored
        return True

    # -- contents

    def _read_files(self) -> None:
        """Read new and changed files, and find what the state before had."""
        snapshot, known = self._snapshot, self._known
        snapshot.records = [one for one in self._kept.values() if one[1:2] == "/"]
        snapshot.files = len(self._unread) + len(snapshot.records)
        has_index = snapshot.files > _SMALL_FILES or snapshot.bytes > _SMALL_BYTES or bool(self._rules)
        racy_ns = self._began - _RACY_NS
        in_memory = 0
        for number, (path, facts, key) in enumerate(self._unread):
            if time.monotonic() - self._reported > _SECOND_S:
                self._reported = time.monotonic()
                self._progress(f"reading {self._top}: {number:,} of {len(self._unread):,} files")
            try:
                digest, content = self._read_file(path, keep=in_memory < _MEMORY_BYTES)
            except FileNotFoundError:
                continue
            in_memory += len(content.data or b"")
            entry = Entry(EXECUTABLE if facts.st_mode & 0o100 else FILE, int(facts.st_mtime), digest)
            if max(facts.st_mtime_ns, facts.st_ctime_ns) >= racy_ns:
                key = f"{path}//read again"
            self._kept[key] = write_entries([(path, entry)])
            snapshot.records.append(self._kept[key])
            snapshot.contents[digest] = content
        if not has_index:
            for path in self._links:
                content = _content_of_link(self._top, path)
                snapshot.contents[new_digest(content.data or b"").hexdigest()] = content
            snapshot.records.sort()
            snapshot.token = new_digest(snapshot.all_entries().encode("utf-8", "surrogateescape")).hexdigest()
            return
        if self._kept == known:
            snapshot.token = snapshot.base = self._token
            return
        before, now = _by_path(known, without=self._kept), _by_path(self._kept, without=known)
        changed = {path: record for path, record in now.items() if before.get(path) != record}
        snapshot.base = self._token
        snapshot.removed = tuple(before.keys() - now.keys())
        snapshot.token = os.urandom(8).hex() if changed or snapshot.removed or not self._token else self._token
        for path, record in changed.items():
            kind, mtime, digest, _ = record.split("/", 3)
            snapshot.entries[path] = Entry(kind, int(mtime), digest)
            if kind == LINK:
                snapshot.contents[digest] = _content_of_link(self._top, path)
        pairs = (part for pair in self._kept.items() for part in pair)
        snapshot.index = "\0".join([self._key, snapshot.token, *pairs])

    def _read_file(self, path: str, *, keep: bool) -> tuple[str, Content]:
        """Return the digest of a file, and its content.

        Raises:
            FileNotFoundError: the file was removed meanwhile.
            UsageError: it is unreadable.
        """
        full = str(self._added[path]) if path in self._added else f"{self._top}/{path}"  # faster than `Path`
        try:
            with open(os.open(full, READ_FLAGS), "rb", buffering=0) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise UsageError(f"cannot read {full}: it is not a regular file")
                data = file.read(_READ_BYTES)
                digest = new_digest(data)
                if keep and len(data) < _READ_BYTES:
                    return digest.hexdigest(), Content(full, data)
                while data := file.read(_READ_BYTES):
                    digest.update(data)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UsageError(f"cannot read {full}: {error.strerror or error}") from error
        return digest.hexdigest(), Content(full)


def _content_of_link(top: Path, path: str) -> Content:
    """Return where a link leads, relative to its folder."""
    full = top / path
    return Content(str(full), os.fsencode(os.path.relpath(os.path.realpath(full), full.parent)))


def _key_of(path: str, facts: os.stat_result) -> str:
    """Return the key of a file in the index, which is another one after each change."""
    return f"{path}//{facts.st_size}/{facts.st_mtime_ns}/{facts.st_ctime_ns}/{facts.st_ino}"


def _by_path(records: Mapping[str, str], without: Mapping[str, str]) -> dict[str, str]:
    """Return the records that are not the same in the other state; sets of pairs would take five times as long."""
    changed = (one for key, one in records.items() if without.get(key) != one)
    return {one.split("/", 3)[3]: one for one in changed if one[1:2] == "/"}


def _index_path(key: str) -> Path:
    return state_folder() / "folders" / short_digest(key)


def _read_index(key: str) -> tuple[str, Mapping[str, str]]:
    """Return the token of the last state, and its entries by path and status."""
    try:
        checksum, _, data = _index_path(key).read_bytes().partition(b"\0")
    except OSError:
        return "", {}
    if checksum != b"%d" % zlib.crc32(data):
        return "", {}
    of, token, *parts = data.decode("utf-8", "surrogateescape").split("\0")
    return (token, dict(zip(parts[::2], parts[1::2], strict=True))) if of == key else ("", {})


class _Ignore:
    """The rules of one `.gitignore` or `.labignore`; its file is read when the first decision needs it.

    Args:
        file: the file.
        prefix: the folder of the file below the shipped one.
        below: the shipped folder below that of the file, if that is above.
    """

    def __init__(self, file: Path, prefix: str, below: str = "") -> None:
        self._file, self._prefix, self._below = file, prefix, below
        self._spec: GitIgnoreSpec | None = None

    def decide(self, path: str, is_folder: bool) -> bool | None:
        """Return whether a path is ignored; None if no rule matches it."""
        if self._spec is None:
            from pathspec import GitIgnoreSpec

            lines = []
            for line in _read_patterns(self._file):
                with suppress(ValueError, re.error):  # `!` and `[z-a]` match nothing, as for git
                    GitIgnoreSpec.from_lines([line])
                    lines.append(line)
            self._spec = GitIgnoreSpec.from_lines(lines)
        return self._spec.check_file(f"{self._below}{path[len(self._prefix) :]}{'/' * is_folder}").include


def _read_patterns(file: Path) -> list[str]:
    """Return the lines of a file of patterns; none if it cannot be read."""
    try:
        with open(os.open(file, READ_FLAGS), encoding="utf-8", errors="replace") as opened:
            text = opened.read(_LONGEST_IGNORE + 1)
    except OSError:
        return []
    lines = [line.partition("#")[0] for line in text.splitlines()] if file.name == ".labignore" else text.splitlines()
    if len(text) > _LONGEST_IGNORE or len(lines) > _MOST_PATTERNS:
        allowed = f"{_LONGEST_IGNORE:,} characters and {_MOST_PATTERNS:,} lines"
        raise UsageError(f"{file} is too long; allowed: {allowed}", "name folders: `data/`")
    return lines
