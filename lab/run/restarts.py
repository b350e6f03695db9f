"""The lab's own launcher begins the workers anew after a failure: all of them, and nodes that were lost first."""

from __future__ import annotations

import time
from dataclasses import replace

from lab.errors import LabError
from lab.plan.plan import Plan
from lab.plan.present import HOST
from lab.record.events import Refusal
from lab.run.drive import Driver

_FAULT_DEADLINE_S = 60.0


class RestartingDriver(Driver):
    """Drives a plan again from its start while it fails, at most so often as it says."""

    def _follow(self) -> None:
        self._restarts = 0
        super()._follow()
        while self._may_restart():
            self._restarts += 1
            self._begin_anew()
            super()._follow()

    def _prepare_all(self) -> None:
        self._planned = self.plan
        self._plan_attempt(0)
        self.collector.attempts.begin_with(self.attempt)
        super()._prepare_all()

    def _plan_attempt(self, number: int) -> None:
        """Have the workers that are started next meet one another, and nobody of an earlier attempt."""
        self.plan = plan_of_attempt(self._planned, number)
        self.attempt = f"{number}@{self.plan.master_addr}:{self.plan.master_port}"

    def _may_restart(self) -> bool:
        """Whether a rank failed or a node was lost, everybody has been stopped, and there is a restart left."""
        facts = self.facts
        hopeless = facts.timed_out or facts.interrupted or facts.refused or facts.engine_lost
        left = self._restarts < self.plan.launcher.max_restarts
        return left and self._failed() and not hopeless and HOST in self.agents.alive and self._all_over()

    def _begin_anew(self) -> None:
        if self.companions:  # what cut a node's power is done before it gets it back
            self.agents.listen_for(lambda: not self.changing, _FAULT_DEADLINE_S)
        there = list(self.agents.alive)
        self._plan_attempt(self._restarts)
        self.collector.attempts.number(self.attempt)
        for worker in self.plan.workers:
            rank = self.facts.rank(worker.rank)
            rank.node, rank.local_rank = worker.node, worker.local_rank
        self.collector.prepared.clear()
        self.emptied = ""  # what was saved is there to go on from
        for node in sorted(there, key=lambda name: name != HOST):
            self._prepare(node, ())
        try:
            self.members.bring_back()
        except LabError as error:
            self.collector.fact(Refusal(time.time(), HOST, f"a node did not come back: {error.message}"))


def plan_of_attempt(plan: Plan, number: int) -> Plan:
    """The plan of an attempt, from 0; each has a store of its own, at the same port."""
    told = {
        "TORCHELASTIC_RESTART_COUNT": str(number),
        "TORCHELASTIC_MAX_RESTARTS": str(plan.launcher.max_restarts),
    }
    return replace(plan, workers=tuple(worker._replace(env={**worker.env, **told}) for worker in plan.workers))
