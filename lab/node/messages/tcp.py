"""What an agent says of its node's connections to another node; goes on to the lab and, unchanged, into the record."""

from __future__ import annotations

from typing import NamedTuple, Optional

STUCK_S = 0.5
"""Data that nobody acknowledged for so long, though it was sent again and again, does not get through,"""
BLINK_S = 0.2
"""So long a kernel waits at least before it sends data again that nobody acknowledged."""
LONG_WAYS = 4
"""if that is so many round trips."""


class Connections(NamedTuple):
    """What the kernel of a node says of its TCP connections to one other node, taken together."""

    time: float
    node: str = ""
    run: str = ""
    peer: str = ""
    """The other node: its address as an agent says it, its name in the record."""
    number: int = 0
    """How many connections there are."""
    unacknowledged_bytes: int = 0
    """What was sent, and the other kernel has not said to have."""
    silent_s: float = 0.0
    """For at least so long the other kernel has not answered though data was sent again and again; of several
    connections the longest."""
    unread_bytes: int = 0
    """What has come, and no process here has read."""
    sent_again: int = 0
    """Segments that were sent again, since the connections were made."""
    segments_out: int = 0
    segments_in: int = 0
    """All that were sent and that came, with those that were sent again."""
    acknowledged_bytes: int = 0
    """What was sent and has arrived, since the connections were made."""
    round_trip_s: float = 0.0
    """The smoothed round trip time of the one that has carried most; 0: not known."""
    rate_bytes_per_s: float = 0.0
    """The largest rate at which data was last delivered by one of them; 0: not known."""
    most_bytes: int = 0
    """What the one that has carried most has carried,"""
    busy_s: float = 0.0
    """for how long it had something on its way,"""
    reader_late_s: float = 0.0
    """and for how long of that the other end had no room, because its process did not read."""
    answers: Optional[bool] = None
    """Whether the other kernel answered when it was asked for a connection; None: it was not asked."""

    @property
    def stuck(self) -> bool:
        """Whether nothing gets through, or nothing comes back: not where the way is only long."""
        return self.silent_s >= max(STUCK_S, LONG_WAYS * self.round_trip_s)
