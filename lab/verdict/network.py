"""What the kernels of the nodes said of their connections to each other: the latest, and what nobody acknowledged."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.node.tcp_messages import Connections

STUCK_S = 0.5
"""Data that was not acknowledged for so long, though it was sent again and again, does not get through."""
Way = tuple[str, str]
"""From one node to another, by their names."""


@dataclass
class Network:
    """What is known of the connections between nodes, by who told it and of whom."""

    latest: dict[Way, Connections] = field(default_factory=dict)
    stuck: dict[Way, Connections] = field(default_factory=dict)
    """The last report of data that nobody acknowledged, where no later one tells that it came through after all."""
    answers: dict[Way, bool] = field(default_factory=dict)
    """Whether the other kernel answered when it was asked last."""

    def take(self, told: Connections, *, over: bool) -> None:
        """Add a report; once it is `over`, connections are closed, and what is missing then means nothing."""
        way = told.node, told.peer
        if told.number:
            self.latest[way] = told
        if told.answers is not None and not (over and self.answers.get(way) is False):
            self.answers[way] = told.answers
        if told.silent_s >= STUCK_S:
            self.stuck[way] = told
        elif not over and way in self.stuck and told.number >= self.stuck[way].number:
            del self.stuck[way]

    def lost(self, one: str, other: str) -> bool:
        """Whether nothing, or nothing that was answered, got through between two nodes when the run was over."""
        ways = (one, other), (other, one)
        return any(way in self.stuck for way in ways) and not any(self.answers.get(way) for way in ways)

    def silent_s(self, one: str, other: str) -> float:
        """For how long at least nothing was acknowledged between two nodes."""
        told = (self.stuck.get(way) for way in ((one, other), (other, one)))
        return max((report.silent_s for report in told if report is not None), default=0.0)

    def arrives(self, one: str, other: str) -> bool:
        """Whether all that one node sent again and again did reach the other, and only the answers were lost."""
        sent, came = self.latest.get((one, other)), self.latest.get((other, one))
        if sent is None or came is None or (one, other) not in self.stuck:
            return False
        if came.number != sent.number or not sent.sent_again:
            return False
        return sent.silent_s >= STUCK_S and came.segments_in >= sent.segments_out
