"""Every error that the lab raises on purpose.

One root, `LabError`, carries the sentence a person reads, a hint that says what to do, and the exit code of the
command line. There is a subclass for each thing that a caller would treat differently, and no more.
"""

from __future__ import annotations

import errno

TYPE_CHECKING = False  # not from typing, which takes longer to import than this
if TYPE_CHECKING:
    from pathlib import Path


class LabError(Exception):
    """What went wrong in one sentence, and what to do about it.

    Args:
        message: what happened, to which node or rank.
        hint: what to do; printed on a line of its own.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        Exception.__init__(self, message)  # not that of another class that it may be of, which takes who knows what
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class UsageError(LabError):
    """The command line or a call of the API asks for something that makes no sense."""

    exit_code = 2


class ScenarioError(UsageError):
    """A scenario is not valid; the message begins with `file:line:column:`."""


class EngineUnavailable(LabError):
    """No engine answers, or the one in use stopped answering."""

    exit_code = 3


class EngineAbsent(EngineUnavailable):
    """The engine is not on this machine at all, as far as one can see."""


class ImageError(LabError):
    """An image cannot be built, or the engine fails over it."""


class ImageUnfit(ImageError):
    """The image that was asked for is missing, or holds no Python with torch."""

    exit_code = 2


class ClusterError(LabError):
    """A cluster cannot be made, or fails."""


class ClusterUnfit(ClusterError):
    """The cluster that was asked for is missing, too small, of another shape, or impossible; nothing was run."""

    exit_code = 2


class MachineLacks(ClusterUnfit):
    """This machine lacks what is asked for, GPUs or a module of its kernel; nothing was run."""


class ClusterBusy(ClusterUnfit):
    """Another run or another command has the cluster."""


class NodeLost(LabError):
    """A node went away while it was needed."""


class RanksFailed(LabError):
    """A function that was called on every rank failed on some of them, or a rank ended in the midst of it.

    Args:
        message: which ranks, and with what.
        hint: where more is to be seen.
        ranks: those that failed in the way that is told.
        record: the folder of the run.
    """

    def __init__(self, message: str, hint: str = "", ranks: tuple[int, ...] = (), record: Path | None = None) -> None:
        super().__init__(message, hint)
        self.ranks = ranks
        self.record = record
        self.shown_inside = False
        """Whether its traceback leads through the function, as it ran on a rank."""


class RanksHung(RanksFailed):
    """A function that was called on every rank did not end in time; the message says who was waited for, and where."""

    exit_code = 4


class RecordError(LabError):
    """The folder of a run cannot be written or read."""


class Interrupted(LabError):
    """The person pressed Ctrl-C or the process was asked to end."""

    exit_code = 130


def wrap_internal_error(error: Exception) -> LabError:
    """What nobody foresaw, as a sentence; the traceback is kept in a file."""
    import tempfile
    import traceback

    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        where = f"{error.filename}: " if error.filename else "a file cannot be read or written: "
        return LabError(f"{where}{error.strerror}", _OF_THE_MACHINE[error.errno])
    first = (str(error).splitlines() or [""])[0][:300]
    hint = "with LAB_DEBUG=1 the traceback is shown"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="lab-error-", suffix=".txt", delete=False, errors="replace"
        ) as file:
            file.write("".join(traceback.format_exception(error)))
        hint = f"please report it with {file.name}; {hint}"
    except OSError:  # there is no room for it either
        pass
    return LabError(f"something went wrong that should not: {type(error).__name__}: {first}", hint)


_ROOM = "free some space there"
_RIGHTS = "choose a folder that you may write to"
_FILES = "close some programs, or raise `ulimit -n`"
_OF_THE_MACHINE = {
    errno.ENOSPC: _ROOM, errno.EDQUOT: _ROOM, errno.EFBIG: _ROOM, errno.EROFS: _RIGHTS, errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS, errno.ENOTDIR: _RIGHTS, errno.EMFILE: _FILES, errno.ENFILE: _FILES,
    errno.EIO: "the disk or the terminal does not work",
}  # fmt: skip
"""Errors of system calls that say what is wrong with this machine, not with the lab."""
