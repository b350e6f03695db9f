"""Notice that the ranks of a run wait for each other, and that none makes progress."""

from __future__ import annotations

import copy
import time
from pathlib import Path

from lab.diagnosis.facts import RunFacts
from lab.node.messages.agent import Stack, Stacks
from lab.run.agent_channels import AgentChannels
from lab.run.collect import Collector

_ANSWER_S = 2.0
"""Time for all ranks to write their stacks."""


class Standstill:
    """Examines the ranks after half of the limit without progress, and after all of it.

    Args:
        limit_s: Seconds without progress.
        agents: Of the run.
        collector: Knows when a rank last did something.
    """

    def __init__(self, limit_s: float, agents: AgentChannels, collector: Collector) -> None:
        self._limit_s, self._agents, self._collector = limit_s, agents, collector
        self._since = 0.0
        self._before: tuple[float, dict[int, Stack]] | None = None
        """When the ranks were first examined, and what they answered."""

    def postpone(self) -> None:
        """Begin again: the ranks have nothing to do, or one of them is at work."""
        self._since, self._before = time.monotonic(), None

    def has_begun(self, facts: RunFacts, folder: Path) -> bool:
        """Return whether ranks are in calls, and those in their own code have not computed, for as long as the limit.

        Args:
            facts: Of the run so far.
            folder: Of its record.
        """
        half_s = self._limit_s / 2
        since, now = max(self._since, self._collector.progressed), time.monotonic()
        if now - since < half_s:
            self._before = None
            return False
        if self._before is None:
            self._before = now, self._ask(facts)
        if now - self._before[0] < half_s:
            return False
        began, before = self._before
        stacks = self._ask(facts)
        if self._collector.progressed > since:
            return False
        self.postpone()
        is_limited = any(one.what.startswith("trace") for one in facts.limits)  # later calls are not on record
        if facts.joined or is_limited or not before.keys() & stacks.keys() >= _running(facts):
            return False
        from lab.diagnosis.ends import IDLE_TO, Standing
        from lab.diagnosis.evidence import Evidence
        from lab.record.read import Record

        facts = copy.deepcopy(facts)
        for rank, stack in stacks.items():
            facts.add(stack._replace(load=(stack.used_s - before[rank].used_s) / (self._since - began)))
        evidence = Evidence(facts=facts, record=Record(path=folder))
        standing = Standing.of(evidence)
        waits = evidence.trace.recorded and (standing.waiting or evidence.is_in_call)
        return bool(waits) and all(evidence.ranks[rank].load <= IDLE_TO for rank in standing.absent)

    def _ask(self, facts: RunFacts) -> dict[int, Stack]:
        """Return the stacks of the ranks, as far as they answer."""
        self._collector.probed = stacks = dict[int, Stack]()
        self._collector.probing = True
        try:
            self._agents.send_all(Stacks(self._agents.run))
            self._agents.listen_for(lambda: stacks.keys() >= _running(facts), _ANSWER_S)
        finally:
            self._collector.probing = False
        return stacks


def _running(facts: RunFacts) -> set[int]:
    return {rank.rank for rank in facts.ranks if not rank.over}
