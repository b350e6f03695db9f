"""Messages about files that a run made; part of `agent`."""

from typing import NamedTuple

SHARED = "shared/"
"""Stands before the path of a file in the shared folder."""


class MadeFile(NamedTuple):
    """A file that a run made."""

    path: str
    """Below the folder that was shipped; below the shared one, behind `SHARED`."""
    rank: int
    """Whose it is; the first rank of the node where that cannot be told."""
    bytes: int
    fingerprint: str = ""
    """Of its contents; empty where it is too large to be fetched, or cannot be read."""
    executable: bool = False
    """Whether its owner may execute it; nothing else of its mode is sent."""


class Made(NamedTuple):
    """From an agent: every process of the run has ended, and this is what they made."""

    run: str
    files: tuple[MadeFile, ...]
    more: int = 0
    """How many more there are."""


class Fetch(NamedTuple):
    """From the lab: asks for some of these files; then nothing of the run is to be left."""

    run: str
    paths: tuple[str, ...]


class Piece(NamedTuple):
    """From an agent: a part of such a file."""

    run: str
    path: str
    data: bytes
    last: bool
