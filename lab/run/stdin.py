"""What ranks read in a run: nothing, or the standard input of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.node.messages.agent import NOTHING, WorkerStart

if TYPE_CHECKING:
    from lab.node.messages import wire
    from lab.plan.plan import WorkerPlan
    from lab.run.conversation import Conversation

SELDOM_S = 1.0


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

    def hear(self, message: wire.Message) -> None:
        """Take a message of an agent about what a rank reads, or about its end."""

    def look(self) -> float:
        """Do what is due; returns for how many seconds nothing will be."""
        return SELDOM_S

    def end(self) -> None:
        """The ranks have ended, or are about to."""
