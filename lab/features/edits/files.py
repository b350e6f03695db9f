"""Notice changes of the files that a run depends on."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from lab.errors import LabError
from lab.run.snapshot import read_snapshot

_SAVE_S = 0.1
"""An editor's save is over after this long: it may rename files, and write several."""
_LEAST_PAUSE_S = 0.2
_PAUSES = 20
"""The files are read again after this many times the duration of a reading: 5% of a core."""
_OF_EDITORS = re.compile(r"\.#.*|#.*#|.*~|\..*\.sw[a-z]|4913|.*___jb_(tmp|old)___|\.goutputstream-.*|\..*\.kate-swp")
"""Files that editors make next to those that a user edits: Emacs, Vim, PyCharm, gedit, and Kate."""


class Watched(NamedTuple):
    """What to watch: what is shipped of a folder, and other files."""

    folder: Path
    others: Collection[Path] = ()
    data: Collection[Path] = ()
    """Folders that nodes have; they are not shipped."""
    all_files: bool = False
    own: Collection[Path] = ()
    """Folders in which the lab itself writes."""


class WatchedFiles:
    """The files of a scenario, compared with those at the start of its run.

    They are read now and then: network folders and some mounts of containers report no changes to inotify.
    """

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self._next_reading = 0.0
        self._before = self._read()

    def follow(self, watched: Watched) -> None:
        """Watch these files, unless they are watched already. Their current contents count as unchanged."""
        if watched != self.watched:
            self.watched = watched
            self.begin()

    def begin(self) -> None:
        """Compare with the current contents from now on."""
        self._before = self._read()

    def accept(self, paths: Iterable[Path]) -> None:
        """Count these files as unchanged, because the lab wrote them."""
        names = {os.path.relpath(path, self.watched.folder) for path in paths}
        now = self._read() if names else {}
        self._before = {name: what for name, what in self._before.items() if name not in names}
        self._before |= {name: now[name] for name in names & now.keys()}

    def find_changes(self) -> list[str]:
        """Return the files that differ, below the folder."""
        before, now = self._before, self._read()
        return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))

    def poll(self) -> list[str]:
        """Return the files that differ if a reading is due."""
        return self.find_changes() if time.monotonic() >= self._next_reading else []

    def wait(self) -> list[str]:
        """Wait for a change, and return the files that differ."""
        while True:
            if self.find_changes():
                time.sleep(_SAVE_S)
                if changes := self.find_changes():
                    return changes
            time.sleep(max(0.0, self._next_reading - time.monotonic()))

    def _read(self) -> dict[str, str]:
        """Return what identifies the content of each file, by its path below the folder."""
        began, watched = time.monotonic(), self.watched
        own = [os.path.relpath(path, watched.folder) + "/" for path in watched.own]
        logs = {os.path.relpath(path, os.path.realpath(watched.folder)) for path in _find_logs()}
        try:
            snapshot = read_snapshot(watched.folder, watched.data, all_files=watched.all_files)
            by_path = [(record.split("/", 3)[3], record) for record in snapshot.records]
        except LabError as error:  # a run reports it
            by_path = [("", error.message)]
        contents = {
            path: record
            for path, record in by_path
            if not path.startswith(tuple(own))
            and not _OF_EDITORS.fullmatch(path.rpartition("/")[2])
            and path not in logs
        }
        for other in watched.others:
            with suppress(OSError):
                facts = other.stat()
                name = os.path.relpath(other, watched.folder)
                contents.setdefault(name, f"{facts.st_size}/{facts.st_mtime_ns}/{facts.st_ino}")
        now = time.monotonic()
        self._next_reading = now + max(_LEAST_PAUSE_S, _PAUSES * (now - began))
        return contents


def _find_logs() -> set[str]:
    """Return the files that the lab's own output goes to, also through a pipe, as to `tee`."""
    ends = {_read_link(f"/proc/self/fd/{fd}") for fd in (1, 2)}
    if pipes := {link for link in ends if link.startswith("pipe:")}:
        for process in Path("/proc").glob("[0-9]*/fd"):
            with suppress(OSError):
                links = {_read_link(f"{process}/{fd}") for fd in os.listdir(process)}
                ends |= links if pipes & links else set()
    return {link for link in ends if link.startswith("/")}


def _read_link(path: str) -> str:
    with suppress(OSError):
        return os.readlink(path)
    return ""
