"""The agent: lives in a node from `lab up` to `lab down`, imports torch once, forks the workers of each run.

It has one thread, so that a fork is safe, and one loop. Messages come over standard input (a container) or over a
Unix socket (the local engine); see `wire`. One run at a time; a run whose client has gone silent ends with its lease.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Protocol

from . import netlink, outputs, processes, store, strays, tcp, warm, workplace
from .config import Config
from .connection import Connection, listen, standard_streams
from .hooks import hooks
from .messages import agent as messages
from .messages import typed, wire
from .messages.agent import Fetch, Follow, Grant, Input, LetGo, Release, Window
from .noderun import NodeRun
from .recorder.journal import clock_id
from .warm import Heap

_TICK_S = 1.0
_MEMORY_TICK_S = 0.05
_LOOK_S = 0.25
_STACK_WAIT_S = 0.25


class Extension(Protocol):
    """What a feature adds to an agent; its hook `agent` makes it."""

    actions: Mapping[type[Any], Callable[[Connection, Any], object]]
    """What is done where messages of a kind arrive."""

    @property
    def pids(self) -> Collection[int]:
        """Processes that are none of a run."""

    @property
    def busy(self) -> bool:
        """Whether it has to be called now and then."""

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector wait for what it waits for."""

    def pass_on(self, ready: Collection[int]) -> None:
        """Act on what is ready."""


class Agent:
    """The state of one node."""

    def __init__(self, config: Config, left: strays.Strays | None = None) -> None:
        self.config = config
        self.left = left
        """Where runs can leave something outside of their folders; None where that cannot be told."""
        self.connections: list[Connection] = []
        self.listener: socket.socket | None = None
        self.run: NodeRun | None = None
        self.unclean = left.unclean if left is not None else ""
        """What a run left that could not be ended or removed: the node is none for another run."""
        self.client: Connection | None = None
        self.outputs: outputs.Outputs | None = None
        """What the run has made, between its end and the fetching."""
        self.heap: Heap | None = None
        """What is gathered once a run has ended; not in agents that were forked, which share theirs."""
        self.claimed_at = self.heard = time.monotonic()
        """Monotonic times of the claim, and of the last message about a run; at first, of the start."""
        self.stacks_due: float | None = None
        self.traces_due = 0.0
        """Monotonic time at which traces are sent next; 0: at once, because some were left when too much waited."""
        self.store_ports: set[int] = set()
        """Where stores of runs listened; each of their connections may keep that port, which keeps no store from it."""
        self.extensions: list[Extension] = [extend(self) for extend in hooks("agent")]
        """What features add."""
        self.actions: dict[type[Any], Callable[[Connection, Any], object]] = {
            messages.Hello: self._greet,
            messages.Claim: self._claim,
            messages.Files: lambda _, files: self._run_of(files).place.take(files),
            Follow: lambda _, asked: self._run_of(asked).follow(asked),
            messages.Prepare: self._prepare,
            messages.Go: lambda _, go: self._run_of(go).go(),
            LetGo: lambda _, asked: self._run_of(asked).let_go(asked),
            messages.Ping: lambda _, ping: self._run_of(ping),
            messages.AskTime: lambda to, asked: to.send(
                messages.TimeTold(asked.run, asked.asked, time.time(), time.monotonic())
            ),
            messages.Stop: lambda _, stop: self._run_of(stop).stop(signal.SIGKILL if stop.hard else signal.SIGTERM),
            messages.Stacks: self._ask_for_stacks,
            messages.Check: lambda _, check: self._run_of(check).check(check),
            messages.Finish: self._finish,
            Fetch: self._fetch,
            Input: lambda _, given: self._run_of(given).heard.give(given),
            Grant: lambda _, grant: self._run_of(grant).heard.grant(grant),
            Window: lambda _, window: self._run_of(window).heard.resize(window),
            messages.Neighbours: lambda _, said: netlink.learn_neighbours(*said),
            Release: lambda _, asked: self._run_of(asked).release(asked),
        }
        for extension in self.extensions:
            self.actions.update(extension.actions)

    def handle(self, connection: Connection, message: wire.Message | wire.Malformed) -> None:
        """Act on one message; every error becomes an answer, never the end of the agent."""
        if isinstance(message, wire.Malformed):
            connection.send(messages.Refused(message.run, message.what, message.reason))
            return
        run, what, action = getattr(message, "run", ""), wire.kind_of(message), self.actions.get(type(message))
        if action is None:
            connection.send(messages.Refused(run, what, f"an agent does not act on {what}"))
            return
        if self.run is not None and run == self.run.run:
            self.heard = time.monotonic()
        try:
            action(connection, message)
        except Exception as error:
            why = str(error) if isinstance(error, (store.StoreError, OSError)) else f"{type(error).__name__}: {error}"
            connection.send(messages.Refused(run, what, why))

    def _greet(self, connection: Connection, hello: messages.Hello) -> None:
        import torch

        idle_s = time.monotonic() - self.heard if self.run is None else 0.0
        connection.send(messages.Ready(node=self.config.node, torch=torch.__version__, idle_s=idle_s))

    def _claim(self, connection: Connection, claim: messages.Claim) -> None:
        if self.run is not None:
            holder = self.run.claim
            if claim.owner != holder.owner:
                connection.send(messages.Busy(claim.run, holder.run, holder.owner, time.monotonic() - self.claimed_at))
                return
            self._end_run(f"run {claim.run} of the same owner took {self.config.node}")
        left = self.unclean
        if not left and self.config.container:  # on the local engine, the network is this machine's
            left = tcp.describe_kept_ports(self.store_ports, strict=self.config.strict)
        if left:
            connection.send(messages.Refused(claim.run, "node", f"an earlier run left {left}"))
            return
        try:
            self.run = NodeRun(claim, self.config, connection.send, self.left)
        except OSError as error:
            connection.send(messages.Refused(claim.run, "node", str(error)))
            return
        self.run.spared = lambda: {pid for extension in self.extensions for pid in extension.pids}
        self.client = connection
        self.claimed_at = self.heard = time.monotonic()
        connection.send(messages.Claimed(claim.run, time.time(), clock_id()))

    def _prepare(self, connection: Connection, prepare: messages.Prepare) -> None:
        run = self._run_of(prepare)
        if prepare.emptied:
            strays.empty(prepare.emptied)
        if prepare.store is not None:
            self.store_ports.add(prepare.store.port)
        run.prepare(prepare)
        connection.send(messages.Prepared(prepare.run))

    def _ask_for_stacks(self, connection: Connection, stacks: messages.Stacks) -> None:
        self._run_of(stacks).heard.request_stacks()
        self.stacks_due = time.monotonic() + _STACK_WAIT_S

    def _finish(self, connection: Connection, finish: messages.Finish) -> None:
        run = self._run_of(finish)
        run.end(lambda: connection.congested, connection.drain)
        self.outputs = run.outputs(finish)
        made = self.outputs.told()
        connection.send(made) if made is not None else self._leave_nothing(connection, run)

    def _fetch(self, connection: Connection, fetch: Fetch) -> None:
        run = self._run_of(fetch)
        for piece in self.outputs.pieces(fetch.paths) if self.outputs else ():
            connection.send(piece)
            connection.drain()
        self._leave_nothing(connection, run)

    def _leave_nothing(self, connection: Connection, run: NodeRun) -> None:
        run.clean()
        self.unclean = ", ".join(run.left)
        connection.send(messages.Finished(run.run))
        self.run = self.client = self.outputs = None
        self.heap = self.heap or (Heap() if self.config.container and not self.config.forked else None)
        if run.heard.imported:  # the next script is likely to need it too, and then does not wait for it
            connection.flush()
            warm.import_frozen(name for name in warm.missing_modules() if name in run.heard.imported)

    def _run_of(self, message: Any) -> NodeRun:
        if self.run is None or self.run.run != message.run:
            raise ValueError(f"run {message.run!r} does not have {self.config.node}")
        return self.run

    def _end_run(self, why: str = "") -> None:
        """End the run before its client asks for it, and tell it why where it may still be there."""
        run, client, self.client = self.run, self.client, None
        if run is None:
            return
        if why and client is not None:
            client.send(messages.Refused(run.run, "run", why))
        run.emit = lambda _: None
        run.clean()
        self.unclean = ", ".join(run.left)
        self.run = None

    def _for_run(self, action: Callable[[NodeRun], object]) -> None:
        """Do something for the run; whatever goes wrong is the end of that run, never of the agent."""
        if self.run is None:
            return
        try:
            action(self.run)
        except Exception as error:
            traceback.print_exc()
            self._end_run(f"its agent met {type(error).__name__}: {error}")

    def serve(self) -> None:
        """Work until the last client of a container is gone for good, or the process is killed."""
        wake_r, wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._leave)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self._open()
        while True:
            selector = selectors.PollSelector()
            selector.register(wake_r, selectors.EVENT_READ)
            if self.listener is not None:
                selector.register(self.listener, selectors.EVENT_READ)
            congested = False
            for connection in self.connections:
                connection.register(selector)
                congested |= connection.congested
            if self.run is not None and not congested:
                self.run.register(selector)
            for extension in self.extensions:
                extension.register(selector)
            ready = {key.fd for key, _ in selector.select(self._patience())}
            selector.close()
            self._step(ready, wake_r)

    def _patience(self) -> float | None:
        """For how many seconds nothing has to be done; None: until somebody says something."""
        if self.stacks_due is not None:
            return max(0.0, self.stacks_due - time.monotonic())
        if self.run is None and self.heap is None and not any(extension.busy for extension in self.extensions):
            return None  # hundreds of nodes may be at rest on one machine
        limited_s = _MEMORY_TICK_S if self.config.memory_bytes else _LOOK_S
        return _TICK_S if self.run is None else min(limited_s, self.run.traces_every_s)

    def _step(self, ready: set[int], wake_r: int) -> None:
        self._for_run(lambda run: run.pass_on(ready))
        for extension in self.extensions:
            extension.pass_on(ready)
        if not ready and self.run is None and self.heap is not None:  # nobody has wanted anything for a second
            self.heap.gather()
        if wake_r in ready:
            os.read(wake_r, 4096)
            self._for_run(NodeRun.reap)
            self.traces_due = 0.0
        if self.listener is not None and self.listener.fileno() in ready:
            self._accept(self.listener)
        for connection in list(self.connections):
            connection.flush()
            if connection.read_fd in ready:
                self._read(connection)
        now = time.monotonic()
        self._for_run(NodeRun.look)
        self._for_run(lambda _: self._send_traces(now))
        if self.run is not None and now - self.heard > self.run.claim.lease_s:
            self._end_run(f"nothing was heard from its command for {self.run.claim.lease_s:g} s (was it stopped?)")
        if self.stacks_due is not None and now >= self.stacks_due:
            self.stacks_due = None
            self._for_run(lambda run: run.heard.report_stacks())

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # whoever called has gone, or there are too many already
            accepted, _ = listener.accept()
            self.connections.append(Connection(accepted.fileno(), accepted.fileno(), accepted))

    def _send_traces(self, now: float) -> None:
        """Send the traces as often as is asked for; what had to be left when too much waited, at once."""
        client = self.client
        if self.run is None or client is None or client.congested or now < self.traces_due:
            return
        left = self.run.heard.send_traces(lambda: client.congested)
        self.traces_due = 0.0 if left else now + self.run.traces_every_s

    def _read(self, connection: Connection) -> None:
        chunk = connection.receive()
        if chunk == b"":
            self._disconnect(connection)
        for message in connection.reader.feed(chunk or b""):
            self.handle(connection, message)

    def _disconnect(self, connection: Connection) -> None:
        if connection.owner is None:  # a container's standard input: its engine is done with this node
            self._leave()
        self.connections.remove(connection)
        if self.client is connection:
            self._end_run()
        connection.owner.close()  # type: ignore[union-attr]

    def _open(self) -> None:
        if self.config.socket is None:
            self.connections.append(standard_streams())
        else:
            self.listener = listen(self.config.socket)

    def _leave(self, *_: Any) -> None:
        self._end_run()
        processes.kill_descendants(set(), deadline_s=1.0)
        os._exit(0)


def main() -> None:
    """Entry point in a container: the configuration is the last argument."""
    config = typed.read(Config, json.loads(sys.argv[-1]))
    sys.argv = [""]
    serve(config)


def serve(config: Config) -> None:
    """Become the agent of a node and never return."""
    if config.peers:
        close = hooks("network")
        if not close:
            sys.exit("its network cannot be closed, as a strict cluster needs it: the feature strict is not there")
        close[0](config.peers)
    processes.become_subreaper()
    os.umask(0o022)
    workplace.clear(config.root)
    warm.import_torch()
    Agent(config, strays.prepare_container(config) if config.container else None).serve()
