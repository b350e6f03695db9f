"""What is said of processes that a script started and that joined a process group: ranks that are in no plan."""

from typing import NamedTuple, Optional

_FIRST = -16
MOST_OF_A_WORKER = 1024
"""So many processes that one worker started are on record."""


def number_of(worker: int, nth: int) -> int:
    """What stands in the place of a rank in messages about the nth process that a worker started; below -15."""
    return _FIRST - worker * MOST_OF_A_WORKER - nth


def worker_of(number: int) -> int:
    """The rank of the worker that started a process."""
    return (_FIRST - number) // MOST_OF_A_WORKER


def nth_of(number: int) -> int:
    """Which of those it is that this worker started, from 0."""
    return (_FIRST - number) % MOST_OF_A_WORKER


def is_joined(number: int) -> bool:
    """Whether what stands in the place of a rank is the number of such a process."""
    return number <= _FIRST


# -- from such a process to its agent, with descriptors
class Joining(NamedTuple):
    """It is about to join a process group; with it come its trace and where it writes its stack, both memfds."""

    rank: int
    """Who it says that it is."""
    time: float
    world_size: int
    meeting: str = ""
    """Where the ranks meet, as far as that can be told: a port, a path."""


class Leaving(NamedTuple):
    """It ends by itself."""

    rank: int
    time: float
    code: Optional[int] = None
    """None where it cannot know."""


# -- from an agent to the lab, and unchanged into the events of the record
class Joined(NamedTuple):
    """A process that a worker started joins a process group."""

    rank: int
    """Its number, see `number_of`."""
    time: float
    node: str = ""
    run: str = ""
    pid: int = 0
    said: int = 0
    """Which rank it says that it is."""
    world_size: int = 0
    meeting: str = ""
    attempt: str = ""
    """That of the worker, see `Started`."""


class LeftRunning(NamedTuple):
    """A process that a script had started was still there when all workers had ended, and was stopped."""

    time: float
    node: str = ""
    run: str = ""
    pid: int = 0
    rank: Optional[int] = None
    """Whose it was; None where that cannot be told."""
    command: str = ""
