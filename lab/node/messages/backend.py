"""What a worker says of the backends of its process groups; goes on to the lab and into the record."""

from typing import NamedTuple


class Named(NamedTuple):
    """A script named another backend for its process groups than the run has."""

    rank: int
    time: float
    named: str = ""
    backend: str = ""
    """That of the run."""
    instead: bool = False
    """Whether the groups got it all the same, instead of the one that was named."""
    at: str = ""
    """The line of the script, `file:line`."""
    node: str = ""
    run: str = ""
