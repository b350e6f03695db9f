"""Define each error that the lab raises on purpose.

The root, `LabError`, has a message for people, a hint that says what to do, and the exit code of the command line.
There is a subclass for each error that callers handle differently, and no others.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager

TYPE_CHECKING = False  # not from typing, which takes longer to import than this
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class LabError(Exception):
    """An error with one sentence about what happened, and a hint about what to do.

    Args:
        message: what happened, to which node or rank.
        hint: what to do; printed on a separate line.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        Exception.__init__(self, message)  # another base class can have other arguments
        self.message, self.hint = message, hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message

    @classmethod
    @contextmanager
    def on_os_error(cls, what: str, hint: str = "") -> Iterator[None]:
        """Turn errors of the system in a block into this one: `cannot write x: No space left on device`."""
        try:
            yield
        except OSError as error:
            raise cls(f"{what}: {error.strerror or error}", hint) from error


class UsageError(LabError):
    """The command line or a call of the API asks for something invalid."""

    exit_code = 2


class ScenarioError(UsageError):
    """A scenario is invalid; the message begins with `file:line:column:`."""

    problems: tuple[tuple[int, int, str], ...] = ()
    """Line and column, both from 1, and message of each problem of the file, as far as they are known."""


class EngineUnavailable(LabError):
    """No engine answers, or the current engine stopped answering."""

    exit_code = 3


class EngineAbsent(EngineUnavailable):
    """The engine seems not to be installed on this machine."""


class ImageError(LabError):
    """The image cannot be built, or the engine fails to handle it."""


class ImageUnfit(ImageError):
    """The requested image is missing, or has no Python with torch."""

    exit_code = 2


class ClusterError(LabError):
    """A cluster cannot be made, or fails."""


class ClusterUnfit(ClusterError):
    """The requested cluster is missing, too small, of another shape, or impossible; nothing ran."""

    exit_code = 2


class MachineLacks(ClusterUnfit):
    """This machine lacks a requested resource, such as GPUs or a kernel module; nothing ran."""


class ClusterBusy(ClusterUnfit):
    """Another run or command uses the cluster."""


class NodeLost(LabError):
    """The run lost a node that it needs."""


class RanksFailed(LabError):
    """A function that was called on every rank failed on some ranks, or a rank ended during the call.

    Args:
        message: which ranks failed, and how.
        hint: where to find details.
        ranks: the ranks with the failure that the message describes.
        record: folder of the run.
    """

    def __init__(self, message: str, hint: str = "", ranks: tuple[int, ...] = (), record: Path | None = None) -> None:
        super().__init__(message, hint)
        self.ranks, self.record = ranks, record
        self.shown_inside = False
        """Whether the traceback leads through the function as it ran on a rank."""


class RanksHung(RanksFailed):
    """A function called on every rank exceeded its deadline; the message names who was waited for, and where."""

    exit_code = 4


class RecordError(LabError):
    """The folder of a run cannot be written or read."""


class NotInRecord(RecordError):
    """There is no such run, or it has no such rank or attempt."""

    exit_code = 2


class Interrupted(LabError):
    """The user pressed Ctrl-C, or the process received a request to end."""

    exit_code = 130


def wrap_internal_error(error: Exception) -> LabError:
    """Wrap an unexpected exception in a `LabError`; write its traceback to a file."""
    import tempfile
    import traceback

    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        where = f"{error.filename}: " if error.filename else "a file cannot be read or written: "
        return LabError(f"{where}{error.strerror}", _OF_THE_MACHINE[error.errno])
    if isinstance(error, FileNotFoundError) and error.filename is None:  # raised by os.getcwd
        return UsageError("the current folder has been removed", "change to another folder, such as with `cd ~`")
    first = (str(error).splitlines() or [""])[0][:300]
    hint = "LAB_DEBUG=1 shows the traceback"
    try:
        descriptor, name = tempfile.mkstemp(".txt", "lab-error-")
        with open(descriptor, "w", errors="replace") as file:
            file.write("".join(traceback.format_exception(error)))
        hint = f"report this error and attach {name}; {hint}"
    except OSError:  # the disk can be full
        pass
    return LabError(f"unexpected error: {type(error).__name__}: {first}", hint)


_ROOM = "free some space there"
_RIGHTS = "choose a folder that you may write to"
_FILES = "close some programs, or raise `ulimit -n`"
_OF_THE_MACHINE = {
    errno.ENOSPC: _ROOM, errno.EDQUOT: _ROOM, errno.EFBIG: _ROOM, errno.EROFS: _RIGHTS, errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS, errno.ENOTDIR: _RIGHTS, errno.EMFILE: _FILES, errno.ENFILE: _FILES,
    errno.EIO: "the disk or the terminal does not work",
}  # fmt: skip
"""Error numbers of system calls that indicate a problem of this machine, not of the lab."""
