"""Turns what the agents of a run say into facts, into its record, and into what an observer sees."""

from __future__ import annotations

import time

from lab.errors import ClusterBusy
from lab.node import wire
from lab.node.messages import Exited, Note, Stack, Started
from lab.node.recorder.journal import boot_id
from lab.record.events import Clock, Event, Refusal
from lab.record.write import RecordWriter
from lab.run.observe import Observer
from lab.verdict.facts import RunFacts
from lab.words import format_duration

BEFORE_THE_START = ("claim", "files", "prepare")
"""Messages whose refusal means that the run cannot begin."""


class Collector:
    """Collects the facts of one run.

    Args:
        facts: is filled.
        writer: takes every fact.
        observer: watches.
    """

    def __init__(self, facts: RunFacts, writer: RecordWriter, observer: Observer) -> None:
        self.facts = facts
        self.writer = writer
        self.observer = observer
        self.answered: dict[str, set[str]] = {"claimed": set(), "prepared": set(), "finished": set()}
        """Answer -> the nodes that have given it."""
        self.claims_sent: dict[str, float] = {}
        """Node -> Unix time at which it was sent its claim."""
        self.trace_bytes = 0
        """How much of the traces has arrived."""

    def collect(self, node: str, message: wire.Message) -> None:
        """Take one message of a node's agent.

        Raises:
            ClusterBusy: somebody else has the node.
            RecordError: the record cannot be written.
        """
        action = getattr(self, f"_on_{message.get('ev')}", None)
        if action is not None:
            action(node, message)

    def fact(self, event: Event) -> None:
        """Take one fact, into the record too."""
        self.writer.event(event)
        self.facts.take(event)

    def _on_claimed(self, node: str, message: wire.Message) -> None:
        self.answered["claimed"].add(node)
        sent = self.claims_sent.get(node)
        if sent is not None:
            now = time.time()
            self.writer.event(
                Clock(time=now, node=node, boot=message.get("boot", ""), **clock_offset(message, sent, now))
            )

    def _on_prepared(self, node: str, message: wire.Message) -> None:
        self.answered["prepared"].add(node)

    def _on_finished(self, node: str, message: wire.Message) -> None:
        self.answered["finished"].add(node)

    def _on_busy(self, node: str, message: wire.Message) -> None:
        age = format_duration(round(message["age_s"]))
        raise ClusterBusy(
            f"{node} is busy with run {message['run']} of {message['owner']}, for {age}",
            "wait until it ends, or use another cluster with --name",
        )

    def _on_refused(self, node: str, message: wire.Message) -> None:
        if message.get("op") in BEFORE_THE_START:
            reason = f"{node} could not start the run: {message['reason']}"
            self.fact(Refusal(time=time.time(), node=node, reason=reason))

    def _on_started(self, node: str, message: wire.Message) -> None:
        self.fact(Started(rank=message["rank"], node=node, pid=message["pid"], time=message["time"]))

    def _on_output(self, node: str, message: wire.Message) -> None:
        data, rank = wire.unpack_bytes(message), message["rank"]
        self.writer.output(rank, message["stream"], data, message["time"])
        self.observer.output(rank, node, message["stream"], data, message["time"])

    def _on_trace(self, node: str, message: wire.Message) -> None:
        lines = wire.unpack_bytes(message)
        self.trace_bytes += len(lines)
        self.writer.trace(message["rank"], lines)

    def _on_note(self, node: str, message: wire.Message) -> None:
        self.fact(Note(rank=message["rank"], name=message["name"], value=message["value"], time=message["time"]))

    def _on_stack(self, node: str, message: wire.Message) -> None:
        text = message["text"] or "(no Python stack)"
        self.fact(Stack(rank=message["rank"], text=text, time=message["time"]))

    def _on_exit(self, node: str, message: wire.Message) -> None:
        told = ("rank", "code", "signal", "out_of_memory", "stopped", "error", "traceback", "stack", "time")
        self.fact(Exited(node=node, raised=message["error_time"], **{name: message[name] for name in told}))


def clock_offset(answer: wire.Message, sent: float, received: float) -> dict[str, float]:
    """How far a node's clock is ahead of this machine's, and how wrong that may be, in seconds.

    Args:
        answer: `boot` and `time` of the node when it answered.
        sent: Unix time at which it was asked.
        received: Unix time at which its answer came.
    """
    if answer.get("boot") and answer["boot"] == boot_id():
        return {"offset_s": 0.0, "error_s": 0.0}
    offset = float(answer["time"]) - (sent + received) / 2
    return {"offset_s": round(offset, 9), "error_s": round((received - sent) / 2, 9)}
