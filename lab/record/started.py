"""`started.json`: which of the processes that a script started are the ranks of its run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lab.errors import RecordError
from lab.node.messages.typed import read
from lab.record.layout import MOST_RANKS, STARTED
from lab.record.record_files import read_json, refuse_many_ranks

if TYPE_CHECKING:
    from lab.record.read import Record


@dataclass(frozen=True, kw_only=True)
class StartedRank:
    """One rank, and the process that it is."""

    rank: int
    node: str = ""
    worker: int = 0
    """Rank of the worker that started it, or that it is."""
    process: int | None = None
    """Its number among processes that joined a group (`lab/node/messages/agent.py`); None: it is the worker itself."""


@dataclass(frozen=True, kw_only=True)
class Started:
    """Where there are no ranks, the workers are those of the run, and all of these processes are beside it."""

    ranks: tuple[StartedRank, ...] = ()
    world_size: int = 0
    """How many ranks they say that they are."""
    aside: tuple[int, ...] = ()
    """Numbers of the processes that are no ranks of the run: they met in groups beside that of the ranks, or before."""


def read_started(folder: Path) -> Started | None:
    """What a record says, without what is damaged; None where no script started a rank."""
    try:
        data = read_json(folder, STARTED)
    except (OSError, ValueError):
        return None
    found = read(Started, data if isinstance(data, dict) else {}, lenient=True)
    refuse_many_ranks(folder, STARTED, len(found.ranks))
    return replace(found, ranks=tuple(one for one in found.ranks if 0 <= one.rank < MOST_RANKS))


def ranks_of(record: Record) -> dict[int, str]:
    """The node of each rank: of the workers, unless scripts started the ranks; empty where that is not known."""
    started = read_started(record.path)
    return {one.rank: one.node for one in started.ranks} if started and started.ranks else record.workers()


def no_log(run: str, rank: int, workers: Sequence[int], started: Started | None) -> RecordError:
    """Why there is no log of a rank, where these are the workers."""
    of_rank = started.ranks if started is not None else ()
    worker = next((one.worker for one in of_rank if one.rank == rank and one.process is not None), None)
    if worker is not None:
        hint = f"what it printed is in the log of that worker: --rank {worker}"
        return RecordError(f"rank {rank} was started by worker {worker} and has no log of its own", hint)
    known = f"ranks 0 to {workers[-1]}" if workers else "no ranks on record"
    return RecordError(f"run {run} has no rank {rank}; it has {known}")
