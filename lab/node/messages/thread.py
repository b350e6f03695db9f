"""What a worker says of its threads; goes on to the lab and into the record."""

from typing import NamedTuple


class ThreadRaised(NamedTuple):
    """A thread of a script, not its main one, ended by an error that nobody caught."""

    rank: int
    time: float
    thread: str = ""
    """Its name."""
    error: str = ""
    at: str = ""
    """The innermost line of the script's folder, `file:line`; empty where it was in none."""
    node: str = ""
    run: str = ""
