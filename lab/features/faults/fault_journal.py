"""What was broken on purpose and has not been undone: a file beside the locks, written before anything is done.

A command may be killed at any moment: whoever comes next finds there what to undo. No file: nothing is broken.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import ClusterError, LabError
from lab.features.faults.fault import kind_data, kind_of
from lab.features.faults.kind import FaultKind
from lab.run.lock import faults_file

BEGUN, IN_FORCE, HEALING, UNDONE = "begun", "in force", "healing", "undone"
"""States, in their order."""
BY_HAND = "lab fault"
"""Who did what no run did."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A fault that was begun and not undone."""

    id: str
    what: FaultKind | None
    """None: another version of the lab did it."""
    said: str
    """As a sentence has it: `kill node2`."""
    by: str
    """The run that did it, or `lab fault`."""
    since: float
    """Unix time."""
    until: float | None
    """Unix time at which whoever did it wanted to heal it."""
    state: str

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {**vars(self), "what": kind_data(self.what) if self.what is not None else None}


class FaultJournal:
    """The journal of one cluster; any number of commands may write in it at a time."""

    def __init__(self, engine: str, cluster: str) -> None:
        self.path = faults_file(engine, cluster)
        self._mine: dict[str, FaultKind] = {}

    def __bool__(self) -> bool:
        return self.path.exists()

    def standing(self) -> list[Standing]:
        """What was begun and not undone, in its order."""
        try:
            lines = self.path.read_bytes().splitlines()
        except OSError:
            return []
        found: dict[str, dict[str, Any]] = {}
        for line in lines:
            with suppress(ValueError, TypeError, AttributeError, KeyError):  # the last one may be half written
                said = json.loads(line)
                found.setdefault(str(said["id"]), {}).update(said)
        return [self._standing(one) for one in found.values() if "what" in one and one.get("state") != UNDONE]

    def in_force(self) -> list[FaultKind]:
        """What is in force, or just being injected; not what is just being healed."""
        return [one.what for one in self.standing() if one.what is not None and one.state != HEALING]

    def _standing(self, said: dict[str, Any]) -> Standing:
        what = self._mine.get(said["id"])
        if what is None:
            with suppress(LabError, ValueError, TypeError, AttributeError, KeyError):
                what = kind_of(said["what"])
        told = {name: said.get(name) for name in ("id", "said", "by", "since", "until", "state")}
        return Standing(what=what, **told)  # type: ignore[arg-type]

    def begin(self, what: FaultKind, by: str, until: float | None = None) -> str:
        """Write that a fault is about to be done, so that it outlives this process; returns what it is called here.

        Raises:
            ClusterError: it cannot be written.
        """
        identity = os.urandom(6).hex()
        said = {"what": kind_data(what), "said": str(what), "by": by, "since": time.time(), "until": until}
        self._append({"id": identity, "state": BEGUN, **said}, sync=True)
        self._mine[identity] = what
        return identity

    def write_state(self, identity: str, state: str) -> None:
        """Write what became of it; where nothing stands any more, the file is removed.

        Raises:
            ClusterError: it cannot be written.
        """
        self._append({"id": identity, "state": state})
        if state == UNDONE:
            with self._locked(create=False):
                if not self.standing():
                    self.path.unlink(missing_ok=True)

    def forget(self) -> None:
        """The cluster is no more, and with it all that was done to it."""
        self.path.unlink(missing_ok=True)

    def _append(self, said: dict[str, Any], *, sync: bool = False) -> None:
        line = json.dumps(said, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
        try:
            with self._locked(create=True) as fd:
                new = os.fstat(fd).st_size == 0
                os.write(fd, line)
                if sync:
                    os.fsync(fd)
                    if new:
                        _sync_folder(self.path.parent)
        except OSError as error:
            raise ClusterError(
                f"cannot write the journal of faults {self.path}: {error.strerror}",
                "make room there, or set XDG_STATE_HOME to a folder of your own",
            ) from error

    @contextmanager
    def _locked(self, *, create: bool) -> Iterator[int]:
        """Hold the file that is at the path, against others who write or remove it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
            except FileNotFoundError:
                yield -1
                return
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if self._is_at_path(fd):
                    yield fd
                    return
            finally:
                os.close(fd)

    def _is_at_path(self, fd: int) -> bool:
        """Whether nobody has removed the file meanwhile."""
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self.path))
        except FileNotFoundError:
            return False


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
