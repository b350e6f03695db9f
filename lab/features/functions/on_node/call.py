"""What is said between a rank that is called and its caller as plain data; see `call_frames`."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional


class Begin(NamedTuple):
    """From the caller: what a rank is to know first."""

    backend: str
    """What the process group is made with; empty: none is."""


class Ready(NamedTuple):
    """From a rank: it waits for calls."""

    python: str
    """Version of the interpreter, `3.11`: functions travel as its bytecode."""


class Wanted(NamedTuple):
    """From a rank: it lacks this module."""

    name: str


class How(NamedTuple):
    """From the caller, with a call: how to make it."""

    filled: list[str]
    """Parameters that each rank fills in: `rank`, `world_size`, `group`."""
    wanted: bool
    """Whether what the function returns is to be sent back."""
    sources: dict[str, str]
    """Texts of source files, so that tracebacks show lines."""
    assertions: Optional[dict[str, Any]]
    """See `call_assertions.SETTINGS`; None where no assertion was rewritten."""
    variables: bool
    """Whether failures tell local variables."""


class Place(NamedTuple):
    """A frame of a traceback."""

    file: str
    line: int
    function: str
    first_line: int
    """Where the function begins."""
    arguments: dict[str, str]
    """What it was called with, as shown."""
    variables: dict[str, str]
    """Its other local variables, as shown; only where they are wanted."""
    hidden: bool = False
    """Whether the function wants to be left out of tracebacks."""


class Failure(NamedTuple):
    """What a function raised."""

    module: str
    kind: str
    """Qualified name of its class."""
    text: str
    places: tuple[Place, ...]
    """Outermost first."""
    notes: tuple[str, ...] = ()
    cause: Optional[Failure] = None
    """What it was raised from."""
    context: Optional[Failure] = None
    """What was being handled; None where that is not to be shown."""


class Answered(NamedTuple):
    """What goes with the value that a function returned."""

    used_up: str = ""
    """Why the rank should take no other call; empty where it may."""
    groups: int = 0
    """How many process groups it has made."""
