"""What goes along with a run besides its agents: companions of features, and what ranks read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lab.node.messages.agent import NOTHING, WorkerStart

if TYPE_CHECKING:
    from pathlib import Path

    from lab.plan.plan import WorkerPlan
    from lab.record.events import Event
    from lab.record.read import Record
    from lab.record.result import Expectation
    from lab.run.conversation import Conversation
    from lab.spec.scenario import Expect

SELDOM_S = 1.0


class Companion:
    """What goes along with a run for a feature; this one does nothing.

    Of a part of a plan it is made with the part, the plan, the engine, the cluster, and whether that is removed after
    the run; others are named in the options of the run.
    """

    triggers: Sequence[dict[str, Any]] = ()
    """Points at which workers are held."""

    @property
    def held_s(self) -> float:
        """For how long it has held workers, in seconds: so much longer the run may take."""
        return 0.0

    @property
    def pending(self) -> bool:
        """Whether it is changing nodes just now."""
        return False

    def describe(self, record: Path) -> Mapping[str, Any]:
        """What the plan of the run says of it; the record is in this folder."""
        return {}

    def begin(self) -> None:
        """Do what comes before the run.

        Raises:
            LabError: that cannot be done.
        """

    def claim(self, agents: Conversation, node: str) -> None:
        """Send the agent of a node what it has to know, right after it was asked to take part."""

    def attend(self, agents: Conversation, record: Callable[[Event], object], done: Callable[[], object]) -> None:
        """Take part from now on: the workers are let go; `done` is called when it has changed nodes."""

    def hear(self, message: Any) -> None:
        """Hear a message of an agent."""

    def finish(self) -> None:
        """Take back what it did, while the agents of the run are still there."""

    def end(self) -> None:
        """The run is over."""

    def close(self) -> None:
        """Let go of what it holds."""

    def told(self, record: Record, expect: Expect) -> tuple[Sequence[Mapping[str, Any]], list[Expectation]]:
        """What results tell of it, and what it expected."""
        return (), []


class Stdin:
    """Nothing: every rank finds its standard input empty, and there is no terminal for any."""

    @property
    def held(self) -> bool:
        """Whether somebody at a terminal may keep ranks from going on."""
        return False

    @property
    def held_s(self) -> float:
        """For how long that was so until now."""
        return 0.0

    @property
    def allowed_s(self) -> float | None:
        """How long what is under way may take; None: what the plan of the run says."""
        return None

    def kind(self, rank: int) -> str:
        """What a rank reads, see `lab.node.messages.agent`."""
        return NOTHING

    def env(self, rank: int) -> dict[str, str]:
        """Variables for a rank, because of what it reads."""
        return {}

    def start(self, worker: WorkerPlan) -> WorkerStart:
        """What a worker is started with."""
        env = {**worker.env, **self.env(worker.rank)}
        return WorkerStart(worker.rank, worker.local_rank, env, list(worker.argv), stdin=self.kind(worker.rank))

    def begin(self, agents: Conversation) -> None:
        """The ranks were let go."""

    def hear(self, message: Any) -> None:
        """Take a message of an agent about what a rank reads, or about its end."""

    def look(self) -> float:
        """Do what is due; returns for how many seconds nothing will be."""
        return SELDOM_S

    def end(self) -> None:
        """The ranks have ended, or are about to."""
