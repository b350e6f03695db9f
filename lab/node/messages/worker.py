"""What a worker may say to its agent, one datagram each."""

from typing import NamedTuple, Union

from .agent import Note
from .backend import Named
from .fault import Reached
from .joined import Joining, Leaving
from .terminal import Breakpoint, Continued
from .thread import ThreadRaised


class Raised(NamedTuple):
    """What ended a script."""

    rank: int
    time: float
    error: str
    traceback: str


class Imported(NamedTuple):
    """Slow parts of torch that a script had to import itself."""

    rank: int
    names: list[str]


Statement = Union[Note, Named, Raised, Imported, Breakpoint, Continued, Joining, Leaving, Reached, ThreadRaised]
