"""The starters of a run: who was asked for where, and whether they have ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from lab.node.messages import Exited, Prepare
from lab.node.start_messages import STARTER, WorkerStart
from lab.plan.plan import Plan


class Starters:
    """Those of one run; none where agents start the workers."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._asked = Counter(starter.node for starter in plan.starters)
        self._ended: Counter[str] = Counter()
        self.failed = False
        """Whether one has, by itself."""

    def __bool__(self) -> bool:
        return bool(self._asked)

    def prepare(self, node: str, prepare: Prepare) -> Prepare:
        """What an agent is asked to prepare, with the starters of its node."""
        if not self:
            return prepare
        mine = tuple(
            WorkerStart(STARTER, STARTER, dict(one.env), list(one.argv), entry=one.entry)
            for one in self._plan.starters
            if one.node == node
        )
        workers = prepare.workers if self._plan.ranks_planned else ()
        return prepare._replace(workers=workers, starters=mine, at_once=self._plan.nproc_per_node)

    def hear(self, event: Exited) -> None:
        """One has ended."""
        self._ended[event.node] += 1
        self.failed |= not event.stopped and (event.code != 0 or event.signal is not None)

    def over(self, alive: Collection[str]) -> bool:
        """Whether all have ended, but for those on nodes that are gone."""
        return all(self._ended[node] >= asked for node, asked in self._asked.items() if node in alive)
