"""The trace of a run for views that are nothing without one."""

from __future__ import annotations

from lab.errors import RecordError
from lab.record.read import Record
from lab.trace.model import Trace
from lab.trace.read import read_trace


def open_trace(record: Record) -> Trace:
    """The trace of a run.

    Raises:
        RecordError: no rank left one.
    """
    trace = read_trace(record)
    if not any(rank.recorder or rank.calls for rank in trace.ranks.values()):
        raise RecordError(
            f"run {record.run} has no trace", "run it again without --no-trace, with a version of the lab that records"
        )
    return trace
