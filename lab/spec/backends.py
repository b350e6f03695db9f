"""What carries the bytes: the backends that a run may have, and the one table of what each of them lacks."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from lab.errors import UsageError
from lab.spec.kinds import Kind, choice, list_of
from lab.spec.reading import did_you_mean
from lab.words import listing

BACKENDS = ("gloo", "mpi", "nccl")
STARTED_BY = {"mpi": "mpirun"}
"""The launchers of backends whose ranks no other can start."""


class Need(NamedTuple):
    """Something that not every backend has."""

    name: str
    """As the key `needs` of a scenario has it."""
    what: str
    """As the end of a sentence: `it needs ...`."""
    lacking: Mapping[str, str]
    """Why, by each backend that does not have it; in quotation marks are its own words, or PyTorch's about it."""
    seen: str = ""
    """What a script that needs it contains, as a regular expression; empty: its text does not tell."""


# fmt: off
_ROWS = (
    Need("monitored barrier", "a barrier that names who does not come",
         dict.fromkeys(("mpi", "nccl"), '"monitored_barrier is only implemented for GLOO backend."'),
         r"\bmonitored_barrier\b"),
    Need("compared calls", "PyTorch to compare the calls of all ranks (TORCH_DISTRIBUTED_DEBUG=DETAIL)",
         {"mpi": "PyTorch does that for groups of gloo, nccl, xccl and ucc only"}),
    Need("calls apart", "a call to take no messages of another kind of call",
         {"mpi": "MPI counts the calls of a group, whatever they are: of two different ones each may be done"}),
    Need("noticed ends", "calls that fail when a peer has ended or is cut off",
         {"mpi": "a call goes on waiting, and so does MPI_Finalize, which waits for all ranks"}),
    Need("size by the script", "groups whose rank and size the script says",
         {"mpi": '"... world_size (2) and rank (0) are ignored since they are assigned by the MPI runtime."'}),
    Need("place by the script", "a store at the place that the script names",
         {"mpi": "MPI knows its ranks: it asks no store, and `init_method` is ignored"}),
    Need("gloo", "gloo itself, and shows what that refuses, or how PyTorch calls it",
         {"mpi": "torch-mpi carries out what gloo refuses, and PyTorch calls it otherwise",
          "nccl": "nccl has limits of its own, and PyTorch calls it otherwise"}),
    Need("limited start", "a limit on how long ranks wait for each other at the start",
         {"mpi": "MPI_Init waits for all ranks, and takes no limit"}),
    Need("own ranks", "ranks that it starts itself",
         {"mpi": '"... a rank started this process, and MPI knows only those that mpiexec starts"'}, r"\bmp\.spawn\("),
    Need("torchrun", "torchrun to start its ranks, maybe again", {"mpi": "only mpirun can start its ranks"}),
    Need("restarts", "its ranks to be started again", {"mpi": "mpirun starts them once"}),
    Need("named backends", "each backend that it names",
         dict.fromkeys(BACKENDS, "`--backend` puts one in the place of all of them")),
)
# fmt: on
NEEDS = {row.name: row for row in _ROWS}
"""By name."""


def needs() -> Kind:
    """Names of rows of the table."""
    return list_of(choice(tuple(NEEDS)), f"a list of any of {listing(NEEDS)}")


def check_backend(name: str) -> str:
    """The name of a backend.

    Raises:
        UsageError: the lab has none of that name.
    """
    if name not in BACKENDS:
        raise UsageError(
            f"the lab has no backend {name!r}{did_you_mean(name, BACKENDS)}; allowed: {listing(BACKENDS)}",
            "docs/backends.md says what each of them can do",
        )
    return name


def lacking(backend: str, script: Path, needed: Collection[str]) -> str:
    """Why a script cannot show on a backend what it is to show; empty where nothing is known against it.

    Args:
        backend: its name.
        script: what its text tells counts.
        needed: and what its scenario says.
    """
    text = _text(script)
    for need in NEEDS.values():
        if backend in need.lacking and (need.name in needed or (need.seen and re.search(need.seen, text))):
            return f"it needs {need.what}; {backend}: {need.lacking[backend]}"
    return ""


def _text(script: Path) -> str:
    try:
        return script.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
