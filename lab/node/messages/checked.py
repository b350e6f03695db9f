"""What is said of the check of a scenario; part of `agent`."""

from typing import NamedTuple

MOST_LEFT_OUT = 20
"""The most paths that a message names; of further ones it holds only the number."""


# -- from an agent to the lab, and unchanged into the events of the record
class Staged(NamedTuple):
    """The check is given copies of what the ranks of its node left, but for these."""

    time: float
    left_out: dict[str, str]
    """By path: why the check is not given it, as a sentence without a full stop, such as `it is a pipe`."""
    node: str = ""
    run: str = ""
    more: int = 0
    """How many paths besides these were left out."""
