"""What a worker may say to its agent, one datagram each."""

from typing import NamedTuple, Union

from .backend_messages import Named
from .fault_messages import Reached
from .joined_messages import Joining, Leaving
from .messages import Note
from .terminal_messages import Breakpoint, Continued
from .thread_messages import ThreadRaised


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
