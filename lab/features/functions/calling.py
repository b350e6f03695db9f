"""Call functions on the ranks of a cluster: `Cluster.call`, the ranks that take calls, and the connection to them."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lab.diagnosis.finding import FindingKind
from lab.errors import LabError, RanksFailed, RanksHung, UsageError
from lab.features.functions.answers import Misread, build_error, lost_a_peer, read_value
from lab.features.functions.on_node import call_channels, messages
from lab.features.functions.pack import CallOptions, Packed, is_own, pack_call, pack_module
from lab.node.messages.agent import ANSWERS, CALLED, Exited, Input, InputDelivered, Message, Output, WorkerStart
from lab.node.messages.typed import Misfit, read_typed
from lab.record.result import Result
from lab.report.sanitize import sanitize_text
from lab.run.collect import Observer
from lab.run.options import RunOptions, Stdin
from lab.spec.keys import check_backend
from lab.spec.scenario import Scenario, check_timeout
from lab.words import name_ranks

if TYPE_CHECKING:
    from lab.cluster import Cluster
    from lab.plan.plan import WorkerPlan
    from lab.run.agent_channels import AgentChannels
else:
    Cluster = object

_MOST_UNDERWAY_BYTES = 1 << 18
_PROGRAM = "labnode/features/functions/on_node/call_channels.py"
"""The path of the module that such a rank runs instead of a script, in the folder that its node imports from."""
_CHUNK_BYTES = 1 << 16


@dataclass
class _Peer:
    """The connection to one rank."""

    node: str
    waiting: bytearray
    underway_bytes: int = 0
    """Bytes that the caller has sent and the rank has not read yet."""
    last: bool = False
    """Whether the caller sends nothing after the waiting bytes."""
    hung_up: bool = False
    """Whether the rank knows that, or can no longer receive it."""


class CallLine(Stdin):
    """The connection between a caller and the ranks; passed to a run with its options.

    Args:
        on_answer: Called with a rank and the bytes that it answered.
        on_exit: Called with a rank that ended. The thread that drives the run calls both; they must return quickly.
    """

    def __init__(self, on_answer: Callable[[int, bytes], None], on_exit: Callable[[int], None]) -> None:
        self._on_answer, self._on_exit = on_answer, on_exit
        self.timeout_s = 0.0
        """The time limit in the plan of the run; the line adds the time that a call needs."""
        self._lock = threading.Lock()
        self._peers: dict[int, _Peer] = {}
        self._to_all = bytearray()
        """The bytes for all ranks from before the run began."""
        self._is_aborted = False
        self._agents: AgentChannels | None = None
        self._began: float | None = None
        self._call: tuple[float, float] | None = None
        """The time of the current call, and its time limit."""
        self._bell, self._button = socket.socketpair()
        for end in (self._bell, self._button):
            end.setblocking(False)

    # -- for the caller

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks, once the run has begun."""
        return tuple(self._peers)

    def call(self, data: bytes, timeout_s: float) -> None:
        """Send a call to each rank; the time limit starts now, or when the run releases the ranks."""
        self._call = (time.monotonic(), timeout_s)
        self.send(data)

    def set_idle(self) -> None:
        """Note that no call is in progress, so that no time limit applies."""
        self._call = None

    def send(self, data: bytes, rank: int | None = None) -> None:
        """Send bytes to a rank, or to all; queue them before the run has begun."""
        with self._lock:
            if self._began is None:
                self._to_all += data
            for peer in self._peers.values() if rank is None else [self._peers[rank]]:
                peer.waiting += data
        self._ring()

    def hang_up(self, *ranks: int) -> None:
        """Let these ranks, or all, end after their answer."""
        for rank in ranks or self._peers:
            self._peers[rank].last = True
        self._ring()

    def abort(self) -> None:
        """End the run at once, as an interrupt does."""
        self._is_aborted = True
        self._ring()

    def close(self) -> None:
        """Close the sockets, once the run is over."""
        self._bell.close()
        self._button.close()

    def _ring(self) -> None:
        with suppress(OSError):  # a byte is already waiting, or the run is over
            self._button.send(b".")

    # -- for the run

    @property
    def held(self) -> bool:
        """Whether no call is in progress."""
        return self._call is None

    @property
    def held_s(self) -> float:
        """Extra seconds for the run beyond its plan, so that the current call has its full time limit."""
        call, began = self._call, self._began
        if call is None or began is None:
            return 0.0
        since, timeout_s = call
        return max(since, began) - began + timeout_s - self.timeout_s

    @property
    def allowed_s(self) -> float | None:
        """Seconds that the current call can take."""
        return self._call[1] if self._call is not None else None

    def kind(self, rank: int) -> str:
        """Return the kind of input that a rank reads."""
        return CALLED

    def start(self, worker: WorkerPlan) -> WorkerStart:
        """Return the message that starts a worker."""
        with self._lock:
            self._peers[worker.rank] = _Peer(worker.node, bytearray(self._to_all))
        return super().start(worker)._replace(script=_PROGRAM)

    def start_reading(self, agents: AgentChannels) -> None:
        """Send the queued bytes, because the run has released the ranks."""
        self._began, self._agents = time.monotonic(), agents
        agents.add_reader(self._bell.fileno(), self._attend)
        self._attend()

    def handle_message(self, message: Message) -> None:
        """Handle an answer of a rank, its report of bytes that it has read, or its end."""
        rank = getattr(message, "rank", -1)
        if (peer := self._peers.get(rank)) is None:
            return
        if isinstance(message, Output) and message.stream == ANSWERS:
            self._on_answer(rank, message.data)
        elif isinstance(message, InputDelivered):
            peer.underway_bytes = max(0, peer.underway_bytes - message.bytes)
            peer.hung_up |= message.closed
            self._feed()
        elif isinstance(message, Exited):
            peer.hung_up = True
            self._on_exit(rank)

    def stop_reading(self) -> None:
        """Tell ranks that wait for a call that none follows, because the run ends."""
        self._feed()
        if self._agents is not None:
            self._agents.remove_reader(self._bell.fileno())
        self._agents = None

    def _attend(self) -> None:
        with suppress(BlockingIOError):
            self._bell.recv(4096)
        if self._is_aborted:
            raise KeyboardInterrupt
        self._feed()

    def _feed(self) -> None:
        """Send queued bytes, within the limit that agents have for slow ranks."""
        agents = self._agents
        for rank, peer in self._peers.items() if agents is not None else ():
            while agents is not None and not peer.hung_up:
                size = min(_MOST_UNDERWAY_BYTES - peer.underway_bytes, _CHUNK_BYTES)
                with self._lock:
                    chunk = bytes(peer.waiting[:size])
                    del peer.waiting[:size]
                    peer.hung_up = peer.last and not peer.waiting
                if not chunk and not peer.hung_up:
                    break
                peer.underway_bytes += len(chunk)
                agents.send(peer.node, Input(agents.run, rank, chunk, last=peer.hung_up))


_MOST_PRINTED_BYTES = 1 << 20
"""Most bytes that the answers of one call can have in memory; the record contains all of them."""
_END_DEADLINE_S = 30.0
_MOST_WANTED = 200
"""Most modules that a rank can request."""


@dataclass
class Answers:
    """Answers to one call so far, by rank."""

    values: dict[int, bytes] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)
    kept: dict[int, str] = field(default_factory=dict)
    """Why the rank did not send its value."""
    failures: dict[int, messages.Failure] = field(default_factory=dict)

    def complete(self, ranks: Collection[int]) -> bool:
        """Return whether each rank has answered with a value, or kept it."""
        return bool(ranks) and {*self.values, *self.kept}.issuperset(ranks)


class Session(Observer):
    """The ranks from their start to their end; observes their run, to print their output during calls.

    Args:
        cluster: Their cluster.
        function: The first function; its file names the run.
        how: Options of its call; without a `backend` the ranks have no process group.
    """

    def __init__(self, cluster: Cluster, function: Callable[..., Any], how: CallOptions) -> None:
        path = Path(getattr(sys.modules.get(getattr(function, "__module__", "")), "__file__", None) or "<none>")
        is_file = path.suffix == ".py" and path.is_file() and is_own(str(path))
        self._cluster, self.backend = cluster, how.backend
        name = path.stem if is_file else getattr(function, "__name__", "").strip("<>_") or "function"
        script, backend = path.resolve() if is_file else Path(call_channels.__file__), how.backend or None
        self._scenario = Scenario(name=name, script=script, backend=backend, timeout_s=how.timeout_s, outputs=None)
        self.packed = Packed(os.fspath(path.resolve().parent if is_file else Path.cwd()))
        self.line = CallLine(self._receive, self._close_idle)
        self.result: Result | None = None
        """The result of the run, once it is over."""
        self.unusable_reason = ""
        """Why these ranks should take no other call; empty: they can."""
        self._pieces: defaultdict[int, messages.Pieces] = defaultdict(messages.Pieces)
        self._wanted = Counter[int]()
        """How many modules each rank has requested."""
        self._lend = cache(lambda name: messages.pack_piece(messages.MODULE, pack_module(name, self.packed)))
        self._answers = Answers()
        self._ending = False
        """Whether a rank has failed, or ended."""
        self._problem = ""
        """An invalid message from a rank."""
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._printed: dict[tuple[int, int], bytearray] = {}
        """Output of the ranks, by rank and stream."""
        self._silenced: set[int] = set()
        """Ranks that have failed; the traceback of their exception already shows their output."""
        self.line.send(messages.pack_piece(messages.BEGIN, how.backend.encode()))
        self.line.send(self._lend("cloudpickle"))
        self._thread = threading.Thread(target=self._drive, name="lab-calls", daemon=True)
        self._started = False

    @property
    def over(self) -> bool:
        """Whether the ranks have ended."""
        return self._started and not self._thread.is_alive()

    def call(self, call: bytes, how: CallOptions) -> list[Any]:
        """Call a packed function on each rank; return what each returned.

        Raises:
            BaseException: The function raised it on ranks; built by `build_error`.
            RanksHung: It exceeded its deadline.
            RanksFailed: A rank ended during the call, or its answer is invalid.
            LabError: The ranks could not start, or returned something that is not data.
        """
        __tracebackhide__ = True
        self._answers = answers = Answers()
        self.line.call(messages.pack_piece(messages.CALL, call), how.timeout_s)
        if not self._started:
            self._started = True
            self._thread.start()
        try:
            with self._changed:
                while not (self.over or answers.complete(self.line.ranks)):
                    self._changed.wait(1.0)
        except BaseException:
            self.abort()
            raise
        if not answers.complete(self.line.ranks) or self._problem:
            raise self._failure(answers, how)
        self.line.set_idle()
        if len(set(answers.groups.values())) > 1:
            self.unusable_reason = "its ranks have different numbers of process groups"
        if answers.kept:
            rank, why = min(answers.kept.items())
            raise LabError(f"rank {rank} returned {why}", "return numbers, tensors, or containers of them; or nothing")
        values = list[Any]()
        try:
            for _, value in sorted(answers.values.items()):
                values.append(read_value(value, self.packed.classes))
        except Misread as error:
            self.abort()  # that rank may still run
            raise LabError(f"the lab cannot read what rank {len(values)} returned: {error}") from None
        return values

    def end(self) -> Result | None:
        """End the ranks as a script ends; return the result of their run."""
        if self._started:
            self.line.hang_up()
            self._thread.join(_END_DEADLINE_S)
            if self._thread.is_alive():
                self.abort()
        return self.result

    def abort(self) -> None:
        """End the ranks at once."""
        self.unusable_reason = "the caller ended it"
        self.line.abort()
        if self._started:
            self._thread.join(_END_DEADLINE_S)

    def show_printed(self) -> None:
        """Print the output of ranks, rank by rank."""
        with self._changed:
            printed, self._printed = self._printed, {}
        for (rank, stream), data in sorted(printed.items()):
            for line in data.decode("utf-8", "replace").splitlines():
                print(f"rank {rank}: {sanitize_text(line)}", file=sys.stderr if stream == 2 else sys.stdout)

    def _failure(self, answers: Answers, how: CallOptions) -> BaseException:
        """Return the error for a call that did not complete."""
        self._thread.join(_END_DEADLINE_S)
        if self._error is not None:
            return self._error
        result, record = self.result, self.result.path if self.result is not None else None
        where = f"`lab show {record}` shows the run" if result is not None else ""
        if self._problem:
            return RanksFailed(self._problem, where, record=record)
        culprit, failures = result.culprit.rank if result and result.culprit else None, answers.failures
        is_elsewhere = culprit not in (None, *failures)
        if failures and not (is_elsewhere and all(map(lost_a_peer, failures.values()))):
            is_elsewhere |= result is not None and any(one.kind != FindingKind.FAILED for one in result.findings[:1])
            cause, sent = result.reason if result is not None and is_elsewhere else "", self.packed
            return build_error(failures, sent.shown, classes=sent.classes, record=record, cause=cause, write=how.write)
        if result is not None and not result.passed:
            kind = RanksHung if result.verdict in ("hung", "timeout") else RanksFailed
            return kind(result.reason, where, () if culprit is None else (culprit,), record)
        missing = tuple(rank for rank in self.line.ranks if rank not in answers.values)
        return RanksFailed(f"{name_ranks(missing)} ended during the call", where, missing, record)

    # -- in the thread that drives the run

    def _drive(self) -> None:
        try:
            self.result = self._cluster.run_for("calls of functions", self._scenario, RunOptions(calls=self.line), self)
        except BaseException as error:  # noqa: BLE001 - it is raised where the call was made
            self._error = error
        finally:
            self.line.close()
            with self._changed:
                self._changed.notify_all()

    def output(self, rank: int, node: str, stream: int, data: bytes, when: float) -> None:
        """Keep the output of a rank."""
        if rank not in self._silenced:
            with self._changed:
                left = _MOST_PRINTED_BYTES - sum(map(len, self._printed.values()))
                self._printed.setdefault((rank, stream), bytearray()).extend(data[: max(0, left)])

    def _receive(self, rank: int, data: bytes) -> None:
        if self._problem:
            return
        try:
            for kind, body in self._pieces[rank].feed(data):
                self._handle(rank, kind, body)
        except (messages.TooLong, Misfit, Misread, ValueError, RecursionError) as error:
            self._problem = f"the answer of rank {rank} is invalid: {error}"[:300]
            self.line.abort()
        self._close_idle()

    def _handle(self, rank: int, kind: bytes, body: bytes) -> None:
        answers = self._answers
        if kind == messages.STATE:
            state = read_typed(messages.State, json.loads(body))
            self.unusable_reason = self.unusable_reason or state.used_up
            answers.groups[rank] = state.groups
        elif kind == messages.VALUE:
            answers.values[rank] = body
        elif kind == messages.FAILURE:
            answers.failures[rank] = read_typed(messages.Failure, json.loads(body.decode("utf-8", "surrogatepass")))
            self._silenced.add(rank)
            self._ending = True
        elif kind == messages.KEPT:
            answers.kept[rank] = body.decode("utf-8", "replace")[:1000]
        elif kind == messages.MODULE:
            self._wanted[rank] += 1
            if self._wanted[rank] > _MOST_WANTED:
                raise Misread(f"it requests more than {_MOST_WANTED} modules")
            self.line.send(self._lend(body.decode()), rank)
        elif kind == messages.READY:
            python, here = body.decode(), "{}.{}".format(*sys.version_info)
            if python != here:
                hint = f"use an image with Python {here}, or another Python here"
                self._error = LabError(
                    f"the nodes have Python {python[:20]}, but this process has {here}",
                    f"functions are sent as bytecode, which works in one version of Python only: {hint}",
                )
                self.line.abort()
        else:
            raise Misread(f"the message has an unknown kind, {kind!r}")

    def _close_idle(self, ended: int | None = None) -> None:
        """Release ranks that have answered once another rank has failed or ended, because no call follows."""
        self._ending |= ended is not None
        if self._ending and (idle := {*self._answers.values, *self._answers.kept}):
            self.line.hang_up(*idle)
        with self._changed:
            self._changed.notify_all()


@dataclass
class _Ranks:
    """The ranks of a cluster that take calls: the first call starts them, and they stay until `end_calls`."""

    session: Session | None = None
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Threads can call at the same time; their calls run one after the other."""


class Calls(Cluster):
    """Methods that the feature adds to `Cluster`; see `Feature.cluster`."""

    def call(
        self, function: Callable[..., Any], /, *args: Any, timeout_s: float = 60.0, fresh: bool = False, **kwargs: Any
    ) -> list[Any]:
        """Call a function on every rank, in a process group of all of them.

        The first call starts the ranks, as one run with its record; they stay for the next calls. They end with `down`,
        before the next `run`, and when a call fails or hangs; the next call then gets new ranks. Calls of several
        threads run one after the other.

        Args:
            function: Any function, also a nested one or a method; it is sent with its code.
            args: Its arguments, pickled by cloudpickle.
            timeout_s: Seconds after which the call counts as hung.
            fresh: Start new ranks for it.
            kwargs: Its arguments by name.

        Returns:
            Its return values by rank: numbers, text, containers, tensors, arrays, dataclasses, named tuples, enums.

        Raises:
            RanksFailed: It raised an exception. The error also has that exception's class, its traceback leads through
                the function, and `ranks` and `record` say where.
            RanksHung: It did not end in time; the message names the ranks that it waited for, and where.
            UsageError: It or its arguments cannot be sent.
            LabError: It did not return data, or the ranks could not start, as for `run`.
        """
        __tracebackhide__ = True

        return self.call_as(function, args, kwargs, CallOptions(timeout_s=timeout_s, fresh=fresh))

    def call_as(
        self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any], how: CallOptions
    ) -> list[Any]:
        """Call a function as `call` does, with all options."""
        __tracebackhide__ = True
        if not callable(function):
            raise UsageError(f"a {type(function).__name__} is not callable", "pass a function, then its arguments")
        check_timeout(how.timeout_s)
        if how.backend:
            check_backend(how.backend)
        ranks = ranks_of(self)
        with ranks.turn:
            session = None if how.fresh else ranks.session
            if session is None or session.backend != how.backend or session.over or session.unusable_reason:
                self.end_calls()
                session = ranks.session = Session(self, function, how)
            call = pack_call(session.packed, function, arguments, named, how)
            try:
                return session.call(call, how)
            finally:
                session.show_printed()

    @property
    def called(self) -> Result | None:
        """Result of the ranks of the last call, once they have ended."""
        session = ranks_of(self).session
        return session.result if session is not None else None

    def end_calls(self) -> Result | None:
        """End the ranks that take calls; return the result of their run, if there were any."""
        ranks = ranks_of(self)
        session, ranks.session = ranks.session, None
        return session.end() if session is not None else None


def ranks_of(cluster: Cluster) -> _Ranks:
    """Return the object that starts and holds the ranks of a cluster."""
    if "_ranks" not in vars(cluster):  # several threads can get here at the same time
        cluster.before_use.append(cluster.end_calls)
    return cast("_Ranks", vars(cluster).setdefault("_ranks", _Ranks()))
