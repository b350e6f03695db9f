"""Messages by which the clocks of hosts are compared; part of `agent`."""

from typing import NamedTuple


# -- from the lab to an agent
class AskTime(NamedTuple):
    """Asks for the time."""

    run: str
    asked: float
    """Unix time by the lab's clock: it is in the answer."""


# -- from an agent to the lab
class TimeTold(NamedTuple):
    """What time it is on a node."""

    run: str
    asked: float
    time: float
    """Unix time by the node's clock."""
    monotonic_s: float
    """What the monotonic clock shows there, by which traces are written."""
