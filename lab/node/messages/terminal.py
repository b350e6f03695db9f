"""Messages about what ranks read, and about the terminal that one of them has; part of `agent`."""

from typing import NamedTuple

NOTHING = ""
"""A rank's standard input is empty, and there is no terminal for its debugger."""
FED = "fed"
"""What somebody sends is a rank's standard input."""
ON_REQUEST = "on request"
"""A rank is given the terminal when its debugger asks for it."""
OWN = "own"
"""The terminal is a rank's from its start to its end."""
ANOTHERS = "another's"
"""The terminal is another rank's from the start: this one passes over its breakpoints."""
CALLED = "called"
"""A rank takes calls from its caller in the place of a script, and answers; its standard input is empty."""
TERMINAL = 3
"""Beside 1 and 2, standard output and error: the stream of what is shown on the terminal that a rank has."""
ANSWERS = 4
"""The stream of what a rank that is called answers; it is no output, and not part of any log."""


class Input(NamedTuple):
    """From the lab: what a rank is to read."""

    run: str
    rank: int
    data: bytes
    last: bool = False
    """Whether nothing follows."""


class Taken(NamedTuple):
    """From an agent: so much of it the rank has been given."""

    run: str
    rank: int
    bytes: int
    closed: bool = False
    """Whether nobody reads it any more."""


class Grant(NamedTuple):
    """From the lab: the rank that asked for the terminal has it now."""

    run: str
    rank: int


class Window(NamedTuple):
    """From the lab: how large the terminal is."""

    run: str
    rank: int
    rows: int
    columns: int


class Breakpoint(NamedTuple):
    """From a worker, and its agent: its debugger asks for the terminal."""

    rank: int
    time: float
    at: str
    """`file:line`."""
    node: str = ""
    run: str = ""


class Continued(NamedTuple):
    """From a worker, and its agent: its debugger has no use for the terminal now."""

    rank: int
    time: float
    node: str = ""
    run: str = ""
