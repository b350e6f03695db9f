"""The starters of a run: who was asked for where, what they ask for, and whether they have ended."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence

from lab.diagnosis.facts import RankFacts
from lab.node.messages.agent import STARTER, Exited, Output, Prepare, WorkerStart
from lab.plan.plan import Plan
from lab.spec.launching import Starter, find_launcher

_STDOUT = 1
_LONGEST_LINE_BYTES = 1 << 16
_START_S = 60.0
"""The time limit of a run is that of its ranks: until starters have begun one, this much is not counted."""


class Starters:
    """Those of one run; none where agents start the workers.

    Args:
        plan: of the run.
        ask: sends a message to the agent of a node.
    """

    def __init__(self, plan: Plan, ask: Callable[[str, Prepare], object]) -> None:
        self._plan = plan
        self._launcher = find_launcher(plan.launcher.name)
        self._asked = Counter(starter.node for starter in plan.starters)
        self._ended: Counter[str] = Counter()
        self._workers: dict[str, tuple[WorkerStart, ...]] = {}
        """Those that are planned, by node."""
        self._said: dict[str, bytes] = defaultdict(bytes)
        """The unfinished line of what the first starter of a node prints."""
        self._ask = ask
        self.failed = False
        """Whether one has, by itself."""
        self._took_s: float | None = None

    def __bool__(self) -> bool:
        return bool(self._asked)

    def prepare(self, node: str, prepare: Prepare) -> Prepare:
        """What an agent is asked to prepare, with the starters of its node; where it has none, it only gets ready."""
        if not self:
            return prepare
        if self._plan.ranks_planned:
            self._workers[node] = prepare.workers
        return self._with(prepare, [one for one in self._plan.starters if one.node == node])

    def _with(self, prepare: Prepare, starters: Sequence[Starter]) -> Prepare:
        mine = tuple(_start(one) for one in starters)
        workers = self._workers.get(starters[0].node, ()) if starters else ()
        return prepare._replace(workers=workers, starters=mine)

    def hear(self, node: str, message: Output | Exited) -> None:
        """A starter of a node printed something, or has ended."""
        if isinstance(message, Output):
            self._listen(node, message)
            return
        self._ended[message.node] += 1
        self.failed |= not message.stopped and (message.code != 0 or message.signal is not None)

    def _listen(self, node: str, said: Output) -> None:
        """Have those further starters started that a starter of this node asks for by what it prints."""
        asking = next((one for one in self._plan.starters if one.node == node), None)
        if asking is None or said.stream != _STDOUT:
            return
        *lines, rest = (self._said[node] + said.data).split(b"\n")
        self._said[node] = rest[-_LONGEST_LINE_BYTES:]
        for line in lines:
            further = self._launcher.further(asking, line.decode("utf-8", "replace"))
            if further is not None and further.node in self._workers:
                self._asked[further.node] += 1
                self._ask(further.node, self._with(Prepare(self._plan.run, ()), [further]))

    def took_s(self, began: float, ranks: Sequence[RankFacts]) -> float:
        """How long they have taken until now, or until a rank had started: seconds since that monotonic time."""
        if self._took_s is not None:
            return self._took_s
        passed_s = min(time.monotonic() - began, _START_S) if self else 0.0
        if not self or any(rank.started is not None for rank in ranks):
            self._took_s = passed_s
        return passed_s

    def again(self, node: str) -> None:
        """A node takes part anew: what has ended there is no more."""
        self._ended[node] = 0

    @property
    def ending(self) -> bool:
        """Whether one has ended: the others are about to."""
        return any(self._ended.values())

    def over(self, alive: Collection[str]) -> bool:
        """Whether all have ended, but for those on nodes that are gone."""
        return all(self._ended[node] >= asked for node, asked in self._asked.items() if node in alive)


def _start(one: Starter) -> WorkerStart:
    return WorkerStart(STARTER, STARTER, dict(one.env), list(one.argv), modules=one.modules)
