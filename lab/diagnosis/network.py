"""What the kernels of the nodes said of their connections to each other: the latest, and what nobody acknowledged."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.node.messages.agent import Connections
from lab.record.events import Clock

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

    addresses: dict[str, str] = field(default_factory=dict)
    """By address: the names of the nodes."""
    ahead: dict[str, float] = field(default_factory=dict)
    """By node: seconds that its clock is ahead of the lab's, where it has another one."""

    def take(self, told: Connections | Clock, *, over: bool) -> None:
        """Add a report; once it is `over`, connections are closed, and what is missing then means nothing."""
        if isinstance(told, Clock):
            self.addresses.update({told.address: told.node} if told.address else {})
            self.ahead.pop(told.node, None)
            self.ahead.update({told.node: told.offset_s} if told.error_s else {})
            return
        way = told.node, told.peer
        if told.number:
            self.latest[way] = told
        if not over:
            self.answers.pop(way, None)
        if told.answers is not None:
            self.answers.setdefault(way, told.answers)
        if told.stuck:
            self.stuck[way] = told
        elif not over and way in self.stuck and told.number >= self.stuck[way].number:
            del self.stuck[way]

    def lost(self, one: str, other: str) -> bool:
        """Whether nothing got through between two nodes when the run was over, or nothing that was answered."""
        ways = (one, other), (other, one)
        if any(self.answers.get(way) for way in ways):
            return False
        return any(way in self.stuck or self.answers.get(way) is False for way in ways)

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
        return sent.stuck and came.segments_in >= sent.segments_out
