"""Messages about a run that somebody watches; part of `agent`."""

from typing import NamedTuple

EVERY_RANK = -1
"""In the place of a rank."""
RUN_ON = 1 << 62
"""In the place of a call's index: it is not held any more."""


class Follow(NamedTuple):
    """From the lab: asks for traces as soon as they are written, before the workers are prepared."""

    run: str
    step: bool = False
    """Whether each worker is held before each call that is recorded."""


class Held(NamedTuple):
    """A rank, and the call that it is held at."""

    rank: int
    """Or EVERY_RANK."""
    call: int
    """Its index in the rank's trace; or RUN_ON."""


class LetGo(NamedTuple):
    """From the lab: lets ranks go on that are held at these calls."""

    run: str
    calls: tuple[Held, ...]
