"""The end of a run in its nodes: the files that are wanted are fetched, and nothing of it is left."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from lab.errors import LabError, RecordError
from lab.node.messages.agent import Fetch, Finish
from lab.run.collect import Collector
from lab.run.conversation import Conversation
from lab.run.outputs import LIMIT_BYTES, Outputs

_FINISH_DEADLINE_S = 5.0
_CANCEL_DEADLINE_S = 0.5
_CLOCKS_DEADLINE_S = 0.5
"""Clocks are compared long before, or stay as they are known."""


def leave(
    agents: Conversation, collector: Collector, outputs: Outputs, wanted: tuple[str, ...] | None, shared: str
) -> None:
    """Have every agent clean up, once the files that are wanted were fetched.

    Args:
        agents: of the nodes that the run has.
        collector: takes what they say.
        outputs: takes the files.
        wanted: patterns that name them; None: none.
        shared: a folder that goes with the nodes, whose files are brought back too; empty: there is none.
    """

    def gone() -> set[str]:
        return nodes - set(agents.alive)

    nodes = collector.claimed & set(agents.alive) - agents.silent
    finish = Finish(agents.run, wanted, LIMIT_BYTES)
    with suppress(LabError):
        if not collector.facts.interrupted:
            collector.clocks.compare(agents.run, nodes)
            agents.listen_for(lambda: collector.clocks.settled(nodes & set(agents.alive)), _CLOCKS_DEADLINE_S)
        for node in list(agents.alive):
            agents.say(node, finish._replace(shared=shared) if node == "node0" else finish)
        _hear_out(agents, collector, lambda: nodes <= collector.finished | outputs.told | gone())
        for node, paths in outputs.choose().items():
            agents.say(node, Fetch(agents.run, tuple(paths)))
        _hear_out(agents, collector, lambda: nodes <= collector.finished | gone())
    outputs.close()
    agents.close()


def _hear_out(agents: Conversation, collector: Collector, done: Callable[[], bool]) -> None:
    """Listen until it is done: not for ever, but as long as the nodes are heard to be at it."""
    interrupted = collector.facts.interrupted
    patience_s = _CANCEL_DEADLINE_S if interrupted else _FINISH_DEADLINE_S
    heard, end = collector.heard, time.monotonic() + patience_s
    while not done():
        with suppress(RecordError):  # what cannot be written is lost; the nodes are waited for all the same
            agents.listen(done, end)
        if time.monotonic() >= end:
            if interrupted or collector.heard <= heard:
                break
            heard, end = collector.heard, end + patience_s
