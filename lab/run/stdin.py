"""What ranks read in a run: nothing, or the standard input of this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lab.node.messages.agent import FED, NOTHING, Input, Taken, WorkerStart

if TYPE_CHECKING:
    from lab.node.messages import wire
    from lab.plan.plan import Plan, WorkerPlan
    from lab.run.conversation import Conversation

_RANK = 0
_MOST_UNDERWAY_BYTES = 1 << 18
_CHUNK_BYTES = 1 << 16
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


class FedStdin(Stdin):
    """What comes in on a descriptor of this process, for the first rank; no faster than that rank reads it."""

    def __init__(self, plan: Plan, fd: int = 0) -> None:
        self._plan = plan
        self._fd = fd
        self._agents: Conversation | None = None
        self._underway = 0
        """Bytes that the rank has not been given yet."""
        self._reading = False

    def kind(self, rank: int) -> str:
        """What a rank reads."""
        return FED if rank == _RANK else NOTHING

    def begin(self, agents: Conversation) -> None:
        """Begin to read."""
        self._agents = agents
        self._read_on(wanted=True)

    def hear(self, message: wire.Message) -> None:
        """Read on when what was sent is taken, and no more when nobody reads."""
        if isinstance(message, Taken):
            self._underway -= message.bytes
            if message.closed:
                self.end()
            elif self._underway < _MOST_UNDERWAY_BYTES:
                self._read_on(wanted=True)

    def end(self) -> None:
        """Read no more."""
        self._read_on(wanted=False)
        self._agents = None

    def _read_on(self, *, wanted: bool) -> None:
        if self._agents is not None and wanted != self._reading:
            self._reading = wanted
            if wanted:
                self._agents.hear(self._fd, self._read)
            else:
                self._agents.ignore(self._fd)

    def _read(self) -> None:
        agents = self._agents
        if agents is None or not self._reading:
            return
        try:
            data = os.read(self._fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        agents.say(self._plan.workers[_RANK].node, Input(self._plan.run, _RANK, data, last=not data))
        self._underway += len(data)
        if not data:
            self.end()
        elif self._underway >= _MOST_UNDERWAY_BYTES:
            self._read_on(wanted=False)
