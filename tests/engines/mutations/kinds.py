"""What a wrong script is, and what may come of it."""

from __future__ import annotations

from typing import Any, NamedTuple

ANYTHING_ELSE = object()


class Note(NamedTuple):
    """The run fails, and the first thing it says is that this note of this rank differs."""

    rank: int
    name: str
    expected: Any
    got: Any = ANYTHING_ELSE
    """Not stated where it is a float that comes out of training."""


class Calls(NamedTuple):
    """The run fails, and the first thing it says is that this rank called something else than the scenario states."""

    rank: int
    says: str


class Check(NamedTuple):
    """The run fails, and its check says this: for what only the notes of all ranks together can show."""

    says: str


class Raises(NamedTuple):
    """The run fails before any note is compared, because PyTorch refuses; it says on which rank, and this."""

    says: str


class Hangs(NamedTuple):
    """The run has no end, and this is where it says that a rank waits."""

    says: str


class Mutation(NamedTuple):
    """A wrong script: what to replace, by what, and what must come of it."""

    old: str
    new: str
    must: Note | Calls | Check | Raises | Hangs
    times: int = 1
    """How often `old` stands in the script."""
