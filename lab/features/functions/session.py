"""The ranks that take one function after the other, in a run of their own, and the bytes that go to each and back."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from lab.errors import LabError, RanksFailed, RanksHung
from lab.features.functions.answers import Misread, all_lost_a_peer, known_class, read_value
from lab.features.functions.on_node import messages as frames
from lab.features.functions.on_node.messages import Answered, Failure, Ready, Wanted
from lab.features.functions.pack import lend
from lab.node.messages.agent import CALLED, Exited, Input, Output, Taken, WorkerStart
from lab.node.messages.typed import Misfit, read
from lab.record.result import Result
from lab.report.harmless import harmless
from lab.run.observe import Observer
from lab.run.stdin import Stdin
from lab.words import name_ranks

if TYPE_CHECKING:
    from lab.node.messages import wire
    from lab.plan.plan import WorkerPlan
    from lab.run.conversation import Conversation

_MOST_UNDERWAY_BYTES = 1 << 18
_PROGRAM = "labnode/features/functions/on_node/call_program.py"
"""What such a rank runs in the place of a script, below what its node imports from."""
_CHUNK_BYTES = 1 << 16


class CallLine(Stdin):
    """Handed to a run with its options.

    Args:
        heard: takes what a rank answered: its number, and any bytes.
        ended: told that a rank has ended; both are called by the thread that drives the run, and return quickly.
    """

    def __init__(self, heard: Callable[[int, bytes], None], ended: Callable[[int], None]) -> None:
        self._heard = heard
        self._ended = ended
        self.timeout_s = 0.0
        """How long the plan of the run allows it to take; the line says how much more that is."""
        self._lock = threading.Lock()
        self._nodes: dict[int, str] = {}
        self._waiting: dict[int, bytearray] = {}
        self._underway: dict[int, int] = {}
        self._hung_up: set[int] = set()
        """Ranks that have been told, or cannot be told any more, that nothing follows."""
        self._last: set[int] = set()
        """Ranks for which nothing follows what was sent."""
        self._given_up = False
        self._agents: Conversation | None = None
        self._began: float | None = None
        self._call: tuple[float, float] | None = None
        """When the call that is under way was made, and how long it may take."""
        self._bell, self._button = socket.socketpair()
        for end in (self._bell, self._button):
            end.setblocking(False)

    # -- for whoever calls

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those that there are, once the run has begun."""
        return tuple(self._nodes)

    def call(self, data: bytes, timeout_s: float) -> None:
        """Send bytes to every rank; from now on, or once the ranks are let go, the run has so long."""
        with self._lock:
            self._call = (time.monotonic(), timeout_s)
        self.send(data)

    def rest(self) -> None:
        """Nothing is under way: time does not count."""
        with self._lock:
            self._call = None

    def send(self, data: bytes, rank: int | None = None) -> None:
        """Send bytes to a rank, or to all of them; before the run has begun, once it does."""
        with self._lock:
            for one in self._nodes if self._nodes and rank is None else (rank,):
                self._waiting.setdefault(-1 if one is None else one, bytearray()).extend(data)
        self._ring()

    def hang_up(self, *ranks: int) -> None:
        """Have these ranks, or all, end as soon as they have answered what was sent."""
        self._last.update(ranks or self._nodes)
        self._ring()

    def give_up(self) -> None:
        """Have the run end at once, as if somebody had interrupted it."""
        self._given_up = True
        self._ring()

    def close(self) -> None:
        """Let go of what it holds, once the run is over."""
        self._bell.close()
        self._button.close()

    def _ring(self) -> None:
        with suppress(OSError):  # it rings already, or the run is over
            self._button.send(b".")

    # -- for the run

    @property
    def held(self) -> bool:
        """Whether nothing is under way."""
        return self._call is None

    @property
    def held_s(self) -> float:
        """How much longer the run may take than its plan says, so that it is what the call under way may take."""
        call, began = self._call, self._began
        if call is None or began is None:
            return 0.0
        since, timeout_s = call
        return max(since, began) - began + timeout_s - self.timeout_s

    @property
    def allowed_s(self) -> float | None:
        """How long the call under way may take."""
        return self._call[1] if self._call is not None else None

    def kind(self, rank: int) -> str:
        """What a rank reads."""
        return CALLED

    def start(self, worker: WorkerPlan) -> WorkerStart:
        """What a worker is started with."""
        self._nodes[worker.rank] = worker.node
        return super().start(worker)._replace(script=_PROGRAM)

    def begin(self, agents: Conversation) -> None:
        """The ranks were let go: send what waits."""
        with self._lock:
            to_all = self._waiting.pop(-1, bytearray())
            self._waiting = {rank: to_all + self._waiting.get(rank, bytearray()) for rank in self._nodes}
            self._underway = dict.fromkeys(self._nodes, 0)
        self._began, self._agents = time.monotonic(), agents
        agents.hear(self._bell.fileno(), self._attend)
        self._attend()

    def hear(self, message: wire.Message) -> None:
        """Take what a rank answered, has read, or that it has ended."""
        if isinstance(message, Output):
            if message.rank in self._nodes:
                self._heard(message.rank, message.data)
        elif isinstance(message, Taken):
            self._underway[message.rank] = max(0, self._underway.get(message.rank, 0) - message.bytes)
            if message.closed:
                self._hung_up.add(message.rank)
            self._feed()
        elif isinstance(message, Exited):
            self._hung_up.add(message.rank)
            self._ended(message.rank)

    def end(self) -> None:
        """The ranks have ended, or are about to; those that wait for a call are told that none follows."""
        self._feed()
        if self._agents is not None:
            self._agents.ignore(self._bell.fileno())
        self._agents = None

    def _attend(self) -> None:
        with suppress(BlockingIOError):
            self._bell.recv(4096)
        if self._given_up:
            raise KeyboardInterrupt
        self._feed()

    def _feed(self) -> None:
        agents = self._agents
        for rank, node in self._nodes.items() if agents is not None else ():
            while agents is not None and rank not in self._hung_up:
                room = _MOST_UNDERWAY_BYTES - self._underway[rank]
                with self._lock:
                    waiting = self._waiting[rank]
                    chunk = bytes(waiting[: min(room, _CHUNK_BYTES)])
                    del waiting[: len(chunk)]
                    last = rank in self._last and not waiting
                if not chunk and not last:
                    break
                self._underway[rank] += len(chunk)
                if last:
                    self._hung_up.add(rank)
                agents.say(node, Input(agents.run, rank, chunk, last=last))
                if not chunk:
                    break


_MOST_BYTES = 1 << 20
"""Of one call; the record has all of it."""


class Printed(Observer):
    """Collects it in the thread that drives the run, and prints it in the one that called."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[int, int], bytearray] = {}
        self._bytes = 0
        self._ignored: set[int] = set()

    def ignore(self, rank: int) -> None:
        """What it prints from now on is told otherwise: the traceback of what it raised."""
        self._ignored.add(rank)

    def output(self, rank: int, node: str, stream: int, data: bytes, when: float) -> None:
        """Keep what a rank printed."""
        if rank in self._ignored:
            return
        with self._lock:
            data = data[: max(0, _MOST_BYTES - self._bytes)]
            self._bytes += len(data)
            self._found.setdefault((rank, stream), bytearray()).extend(data)

    def show(self) -> None:
        """Print it, rank by rank."""
        with self._lock:
            found, self._found, self._bytes = self._found, {}, 0
        for (rank, stream), data in sorted(found.items()):
            for line in data.decode("utf-8", "replace").splitlines():
                print(f"rank {rank}: {harmless(line)}", file=sys.stderr if stream == 2 else sys.stdout)


_END_DEADLINE_S = 30.0
_MOST_WANTED = 200
"""So many modules a rank may ask for."""
_OTHER_PYTHON = (
    "functions travel as bytecode, which is of one version: use an image with Python {here}, or another Python here"
)


@dataclass
class Answers:
    """What came of one call so far, by rank."""

    values: dict[int, bytes] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)
    kept: dict[int, str] = field(default_factory=dict)
    """Why a value was not sent."""
    failures: dict[int, Failure] = field(default_factory=dict)

    def complete(self, ranks: tuple[int, ...]) -> bool:
        """Whether every rank has answered with a value, or kept it."""
        return bool(ranks) and all(rank in self.values or rank in self.kept for rank in ranks)


class Session:
    """The ranks from their start to their end.

    Args:
        run: runs them; given the line to them, returns the result when all have ended.
        folder: the caller's own code below it is named by its path there.
        backend: what their process group is made with; empty: they have none.
        failed: told that a rank has failed, which prints that too.
    """

    def __init__(
        self, run: Callable[[CallLine], Result], folder: str, backend: str, failed: Callable[[int], None]
    ) -> None:
        self.folder = folder
        self.backend = backend
        self.line = CallLine(self._hear, self._ended)
        self.result: Result | None = None
        """Of the run, once it is over."""
        self.worn: str = ""
        """Why no other call should be made here; empty where one may."""
        self.shown: dict[str, str] = {}
        """Paths of source files here, by what ranks call them."""
        self.classes: dict[tuple[str, str], type | None] = {}
        """Those that were sent by value, by module and name; None: there are two."""
        self._run = run
        self._failed = failed
        self._pieces: dict[int, frames.Pieces] = {}
        self._wanted: dict[int, int] = {}
        self._lent: dict[str, bytes] = {}
        self._answers = Answers()
        self._ending = False
        """Whether a rank has failed, or ended."""
        self._problem = ""
        """What a rank said that cannot be."""
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self.line.send(frames.pack(frames.BEGIN, json.dumps({"backend": backend}).encode()))
        self.line.send(self._lend("cloudpickle"))
        self._thread = threading.Thread(target=self._drive, name="lab-calls", daemon=True)
        self._started = False

    @property
    def over(self) -> bool:
        """Whether the ranks have ended."""
        return self._started and not self._thread.is_alive()

    def call(self, call: bytes, timeout_s: float) -> list[bytes]:
        """Call what is pickled on every rank.

        Returns:
            What each rank answered, see `call_values`.

        Raises:
            Failed: it raised something on some ranks.
            RanksHung: it did not end in time.
            RanksFailed: a rank ended in the midst of it, or answered what cannot be.
            LabError: the ranks could not be started.
        """
        self._answers = answers = Answers()
        self.line.call(frames.pack(frames.CALL, call), timeout_s)
        if not self._started:
            self._started = True
            self._thread.start()
        try:
            with self._changed:
                while not (self.over or answers.complete(self.line.ranks)):
                    self._changed.wait(1.0)
        except BaseException:
            self.give_up()
            raise
        if not answers.complete(self.line.ranks) or self._problem:
            self._raise(answers)
        self.line.rest()
        if len(set(answers.groups.values())) > 1:
            self.worn = "its ranks have not made the same process groups"
        if answers.kept:
            ranks, why = min(answers.kept), answers.kept[min(answers.kept)]
            raise LabError(f"rank {ranks} returned {why}", "return numbers, tensors or containers of them; or nothing")
        return [answers.values[rank] for rank in sorted(answers.values)]

    def end(self) -> Result | None:
        """Have the ranks end, as a script that is over; returns the result of their run."""
        if self._started:
            self.line.hang_up()
            self._thread.join(_END_DEADLINE_S)
            if self._thread.is_alive():
                self.give_up()
        return self.result

    def give_up(self) -> None:
        """Have the ranks end at once."""
        self.worn = "it was given up"
        self.line.give_up()
        if self._started:
            self._thread.join(_END_DEADLINE_S)

    def _raise(self, answers: Answers) -> None:
        """Raise what kept the call from coming to its end."""
        self._thread.join(_END_DEADLINE_S)
        if self._error is not None:
            raise self._error
        result = self.result
        where = f"its record: lab show {result.path}" if result is not None else ""
        record = result.path if result is not None else None
        if self._problem:
            raise RanksFailed(self._problem, where, record=record)
        culprit = result.culprit.rank if result is not None and result.culprit is not None else None
        if answers.failures and not (culprit not in (None, *answers.failures) and all_lost_a_peer(answers.failures)):
            raise Failed(answers.failures, self)
        if result is not None and result.verdict == "hung":
            raise RanksHung(result.reason, where, record=record)
        if result is not None and not result.passed:
            ranks = () if culprit is None else (culprit,)
            raise RanksFailed(result.reason, where, ranks, record)
        missing = tuple(rank for rank in self.line.ranks if rank not in answers.values)
        raise RanksFailed(f"{name_ranks(missing)} ended in the midst of the call", where, missing, record)

    # -- in the thread that drives the run

    def _drive(self) -> None:
        try:
            self.result = self._run(self.line)
        except BaseException as error:  # noqa: BLE001 - it is raised where the call was made
            self._error = error
        finally:
            self.line.close()
            with self._changed:
                self._changed.notify_all()

    def _hear(self, rank: int, data: bytes) -> None:
        if self._problem:
            return
        try:
            for kind, body in self._pieces.setdefault(rank, frames.Pieces()).feed(data):
                self._take(rank, kind, body)
        except (frames.TooLong, Misfit, Misread, ValueError, RecursionError) as error:
            self._problem = f"rank {rank} answered what cannot be read: {error}"[:300]
            self.line.give_up()
        with self._changed:
            self._changed.notify_all()

    def _take(self, rank: int, kind: bytes, body: bytes) -> None:
        answers = self._answers
        if kind == frames.VALUE:
            length = int.from_bytes(body[:8], "big")
            answered = read(Answered, json.loads(body[8 : 8 + length]))
            self.worn = self.worn or answered.used_up
            answers.groups[rank], answers.values[rank] = answered.groups, body[8 + length :]
            self._let_idle_end()
        elif kind == frames.FAILURE:
            answers.failures[rank] = read(Failure, json.loads(body.decode("utf-8", "surrogatepass")))
            self._failed(rank)
            self._ending = True
            self._let_idle_end()
        elif kind == frames.KEPT:
            answers.kept[rank] = body.decode("utf-8", "replace")[:1000]
            self._let_idle_end()
        elif kind == frames.MODULE:
            self._wanted[rank] = self._wanted.get(rank, 0) + 1
            if self._wanted[rank] > _MOST_WANTED:
                raise Misread(f"it wants more than {_MOST_WANTED} modules")
            self.line.send(self._lend(read(Wanted, json.loads(body)).name), rank)
        elif kind == frames.READY:
            python, here = read(Ready, json.loads(body)).python, "{}.{}".format(*sys.version_info)
            if python != here:
                self._error = LabError(
                    f"the nodes have Python {python[:20]}, and this is {here}", _OTHER_PYTHON.format(here=here)
                )
                self.line.give_up()
        else:
            raise Misread(f"a piece of the kind {kind!r}")

    def _lend(self, name: str) -> bytes:
        if name not in self._lent:
            lent = lend(name, self.folder)
            self.shown.update(lent.shown)
            self._lent[name] = frames.pack(frames.MODULE, lent.body)
        return self._lent[name]

    def _let_idle_end(self) -> None:
        """Once a rank has failed, those that have answered wait for nothing."""
        idle = [rank for rank in self.line.ranks if rank in self._answers.values or rank in self._answers.kept]
        if self._ending and idle:
            self.line.hang_up(*idle)

    def _ended(self, rank: int) -> None:
        """A rank that has ended will not answer: the others are to end too."""
        self._ending = True
        self._let_idle_end()
        with self._changed:
            self._changed.notify_all()


class Failed(Exception):
    """What a function raised on some ranks, as it was described."""

    def __init__(self, failures: dict[int, Failure], session: Session) -> None:
        super().__init__()
        self.failures = failures
        self.session = session


def decode(answers: list[bytes], classes: Mapping[tuple[str, str], type | None]) -> list[Any]:
    """What a call returned, by rank.

    Args:
        answers: by rank.
        classes: those that were sent by value, by module and name.

    Raises:
        LabError: a rank returned what is not taken here.
    """
    values = []
    for rank, answer in enumerate(answers):
        try:
            values.append(read_value(answer, partial(known_class, sent=classes)))
        except Misread as error:
            raise LabError(f"what rank {rank} returned cannot be read: {error}") from None
        except ImportError as error:
            with suppress(AttributeError):
                raise LabError(f"what rank {rank} returned needs {error.name} here", "install it here too") from None
    return values
