"""Messages about what is broken on purpose; part of `agent`, and `Reached` of `worker` too."""

from typing import Any, NamedTuple


# -- from the lab to an agent
class Do(NamedTuple):
    """Asks for a deed: see `deeds`."""

    id: str
    """Names the request, in the answer."""
    deed: str
    said: dict[str, Any]
    """What there is to say of it."""
    run: str = ""
    """The run whose client asks; empty: somebody beside any run."""


class Undo(NamedTuple):
    """Asks for a deed to be taken back, whether it was done or not."""

    id: str
    deed: str
    said: dict[str, Any]
    run: str = ""


class LookAt(NamedTuple):
    """Asks how it is with a deed; nothing is changed."""

    id: str
    deed: str
    said: dict[str, Any]
    run: str = ""


class Release(NamedTuple):
    """Lets a rank go on that is held."""

    run: str
    rank: int
    hold: int
    """The number that it gave its hold."""
    deed: dict[str, Any]
    """What it is to do itself before it goes on; empty: nothing."""


# -- from an agent to the lab
class Done(NamedTuple):
    """The answer to a request for a deed, or for one to be taken back, or looked at."""

    id: str
    found: dict[str, Any]
    """What was found where it was done."""
    wrong: str = ""
    """Why it could not be done, a sentence; empty: it was."""
    run: str = ""
    """As in the request."""


class Reached(NamedTuple):
    """A rank is held at a point that a fault waits for; also what a worker says to its agent."""

    rank: int
    time: float
    hold: int
    """A number of its own for this hold."""
    trigger: int
    """Index of the fault in the plan."""
    heals: bool = False
    """Whether it is the event that heals it."""
    call: int = 0
    """The how-manieth of that rank's calls of the operation, phases of the name, or notes of the name; from 1."""
    value: Any = None
    """What it notes."""
    brought: tuple[dict[str, Any], ...] = ()
    """The tensors that its call brings: `elements`, `dtype`, and `bits` of a number."""
    node: str = ""
    run: str = ""
    attempt: str = ""
