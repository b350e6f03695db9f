"""The agent: lives in a node from `lab up` to `lab down`, imports torch once, and forks the workers of each run.

It has one thread, so that a fork is safe, and one loop. Messages come over standard input (a container) or over a Unix
socket (the local engine); see `wire`. It serves one run at a time. If the client sends nothing for the time of its
lease, the agent ends the run.
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
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from . import launch, leftovers, limits, netlink, outputs, processes, run_folders, store, tcp, warm
from .hooks import hooks
from .messages import agent as messages
from .messages import typed, wire
from .noderun import NodeRun
from .recorder.journal import clock_id

_TICK_S = 1.0
_MEMORY_TICK_S = 0.05
_RUN_TICK_S = 0.25
_STACK_WAIT_S = 0.25
_SENDING_S = 0.1
"""The agent reads messages this often while it sends files."""


class Agent:
    """The state of one node."""

    def __init__(self, config: messages.Config, leftovers: leftovers.Leftovers | None = None) -> None:
        self.config = config
        renewed = hooks("succession") if config.strict and config.container else ()
        succession: Any = next((begin() for begin in renewed), ((), None))
        ports, self._hand_over = succession  # on a strict node this is a new process now, for one run
        self._leftovers = leftovers
        """Where runs can leave something outside of their folders; None: unknown."""
        self.connections: list[wire.Connection] = []
        self._listener: socket.socket | None = None
        self.run: NodeRun | None = None
        self._unclean = leftovers.unclean if leftovers is not None else ""
        """What a run left that could not be ended or removed; with it the node refuses other runs."""
        self._kept = run_folders.open_kept_folders(config)
        self._waiting: list[messages.Prepare] = []
        """What has to wait until the script's folder is complete."""
        self._outputs: outputs.Outputs | None = None
        """The files that the run has made, between its end and the fetching."""
        self._pieces: Iterator[messages.Piece] | None = None
        """Of files, to be sent; None: they were not asked for yet."""
        self._heap: warm.Heap | None = None
        """Memory to gather once a run has ended; None in forked agents, which share that of their parent."""
        self._claimed_at = self._last_message_at = time.monotonic()
        """Monotonic times of the claim and of the last message about a run; at first, of the start."""
        self._stacks_due: float | None = None
        self._traces_due = 0.0
        """Monotonic time at which traces are sent next; 0: at once, because congestion stopped the last transfer."""
        self._imported: set[str] | None = None
        """What the workers of the last run imported, for a successor; None: no run has ended."""
        self._store_ports: set[int] = set(ports)
        """Ports of the stores of earlier runs. Their connections may keep a port, but a store can reuse it."""
        self._extensions: list[Any] = [extend(self) for extend in hooks("agent")]
        """Extensions of features, see `hooks`."""
        self.actions: dict[type[Any], Callable[[wire.Connection, Any], object]] = {
            messages.Hello: self._greet,
            messages.Claim: self._claim,
            messages.AskTime: lambda to, asked: to.send(
                messages.ClockReading(asked.run, asked.asked, time.time(), time.monotonic())
            ),
            messages.Neighbours: lambda _, neighbours: netlink.learn_neighbours(*neighbours),
        }
        self._of_run: dict[type[Any], Callable[[NodeRun, Any], object]] = {
            messages.Folder: lambda run, folder: self._report_lacking(run, run.folders.describe(folder)),
            messages.Content: lambda run, content: self._report_lacking(run, run.folders.receive(content)),
            messages.Follow: NodeRun.follow,
            messages.Prepare: self._prepare,
            messages.Go: lambda run, _: run.go(),
            messages.Ping: lambda *_: None,
            messages.Stop: lambda run, stop: run.stop(signal.SIGKILL if stop.hard else signal.SIGTERM),
            messages.Stacks: self._request_stacks,
            messages.Check: NodeRun.check,
            messages.Finish: self._finish,
            messages.Fetch: self._fetch,
            messages.Input: NodeRun.write_input,
            messages.Window: lambda run, window: run.find_input_channel(window.rank).resize(
                window.rows, window.columns
            ),
            messages.Release: NodeRun.release,
        }
        """Actions that need the current run of this node."""
        for extension in self._extensions:
            self.actions.update(extension.actions)

    def handle(self, connection: wire.Connection, message: messages.Message | wire.Malformed) -> None:
        """Act on one message; an error becomes an answer and never ends the agent."""
        if isinstance(message, wire.Malformed):
            connection.send(messages.Refused(*message))
            return
        run, what, kind = getattr(message, "run", ""), wire.kind_of(message), type(message)
        mine = self.run if self.run is not None and self.run.run == run else None
        if mine is not None:
            self._last_message_at = time.monotonic()
        try:
            if kind in self.actions:
                self.actions[kind](connection, message)
            elif kind not in self._of_run:
                connection.send(messages.Refused(run, what, f"the agent does not support the message {what}"))
            elif mine is None:
                raise ValueError(f"{self.config.node} does not belong to run {run!r}")
            else:
                self._of_run[kind](mine, message)
        except launch.NodeLacks as error:
            connection.send(messages.Refused(run, messages.LACKS, str(error)))
        except Exception as error:
            why = str(error) if isinstance(error, (store.StoreError, OSError)) else f"{type(error).__name__}: {error}"
            connection.send(messages.Refused(run, what, why))

    def _greet(self, connection: wire.Connection, hello: messages.Hello) -> None:
        import torch

        idle_s = time.monotonic() - self._last_message_at if self.run is None else 0.0
        store = self._kept.store
        known = (store.identity, store.size_bytes())
        connection.send(messages.Ready(self.config.node, torch.__version__, messages.PROTOCOL, idle_s, *known))

    def _claim(self, connection: wire.Connection, claim: messages.Claim) -> None:
        if self.run is not None:
            holder = self.run.claim
            if claim.owner != holder.owner:
                age_s = time.monotonic() - self._claimed_at
                connection.send(messages.Busy(claim.run, holder.run, holder.owner, age_s))
                return
            self._end_run(f"run {claim.run} of the same owner claimed {self.config.node}")
        left = self._unclean
        if not left and self.config.container:  # on the local engine, the network belongs to the machine
            left = tcp.describe_kept_ports(self._store_ports, strict=self.config.strict)
        if claim.least_torch:
            launch.check_torch(claim.least_torch, claim.torch_user)
        try:
            if left:
                raise OSError(f"an earlier run left behind {left}")
            self.run = NodeRun(claim, self.config, connection, self._kept, self._leftovers)
        except OSError as error:
            connection.send(messages.Refused(claim.run, "node", str(error)))
            return
        self.run.spared = lambda: {pid for extension in self._extensions for pid in extension.pids}
        self._claimed_at = self._last_message_at = time.monotonic()
        connection.send(messages.Claimed(claim.run, time.time(), clock_id()))

    def _report_lacking(self, run: NodeRun, lacking: messages.Lacks | None) -> None:
        if lacking is not None:
            run.send(lacking)  # nodes that share the store begin now, too
        run.folders.make()
        if run.folders.are_complete:
            waiting, self._waiting = self._waiting, []
            for prepare in waiting:
                self._prepare(run, prepare)

    def _prepare(self, run: NodeRun, prepare: messages.Prepare) -> None:
        if not run.folders.are_complete:
            self._waiting.append(prepare)
            return
        if prepare.emptied:
            leftovers.empty_folder(prepare.emptied)
        if prepare.store is not None:
            if not run.workers:  # else it is the same run's next attempt
                limits.refuse_full_shared_folder(self.config)
            self._store_ports.add(prepare.store.port)
        run.prepare(prepare)
        run.send(messages.Prepared(prepare.run))

    def _request_stacks(self, run: NodeRun, stacks: messages.Stacks) -> None:
        run.request_stacks()
        self._stacks_due = time.monotonic() + _STACK_WAIT_S

    def _finish(self, run: NodeRun, finish: messages.Finish) -> None:
        run.end()
        self._outputs = run.outputs(finish)
        made = self._outputs.report()
        run.send(made) if made is not None else self._leave_nothing(run)

    def _fetch(self, run: NodeRun, fetch: messages.Fetch) -> None:
        self._pieces = self._outputs.pieces(fetch.paths) if self._outputs else None

    def _send_pieces(self, run: NodeRun) -> None:
        """Send pieces of files for a moment; in between, the lab may end the transfer."""
        end = time.monotonic() + _SENDING_S
        while self._pieces is not None and time.monotonic() < end:
            piece = next(self._pieces, None)
            run.send(piece) if piece is not None else self._leave_nothing(run)
            run.send.drain()

    def _leave_nothing(self, run: NodeRun) -> None:
        self._clean(run)
        run.send(messages.Finished(run.run))
        self._kept.shrink()
        self._outputs = None
        self._heap = self._heap or (warm.Heap() if self.config.container and not self.config.forked else None)
        if run.imported and not self._hand_over:  # the next script will probably need it, too
            warm.import_frozen(name for name in warm.missing_modules() if name in run.imported)

    def _clean(self, run: NodeRun) -> None:
        run.clean()
        self._unclean = ", ".join(run.uncleaned)
        self.run, self._waiting, self._pieces, self._imported = None, [], None, run.imported

    def _end_run(self, why: str = "") -> None:
        """End the run before its client asks for it, and send the reason if the client may still be there."""
        if self.run is None:
            return
        if why:
            self.run.send(messages.Refused("", "run", why))
        self.run.send.client = None
        self._clean(self.run)

    def _for_run(self, action: Callable[[NodeRun], object]) -> None:
        """Do something for the run; an error ends that run, but never the agent."""
        if self.run is None:
            return
        try:
            action(self.run)
        except Exception as error:
            traceback.print_exc()
            self._end_run(f"its agent failed with {type(error).__name__}: {error}")

    def serve(self) -> None:
        """Work until a container's client closes the connection for good, or the process is killed."""
        wake_r, wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._leave)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        if self.config.socket is None:
            self.connections.append(wire.standard_streams())
        else:
            self._listener = wire.open_listener(self.config.socket)
        while True:
            self._end_after_run()
            with selectors.PollSelector() as selector:
                selector.register(wake_r, selectors.EVENT_READ)
                if self._listener is not None:
                    selector.register(self._listener, selectors.EVENT_READ)
                for connection in self.connections:
                    connection.register(selector)
                if self.run is not None and not any(connection.congested for connection in self.connections):
                    self.run.register(selector)
                for extension in self._extensions:
                    extension.register(selector)
                ready = {key.fd for key, _ in selector.select(self._patience_s())}
            self._step(ready, wake_r)

    def _end_after_run(self) -> None:
        """On a strict node, leave the next run to an agent that has nothing of the last one in its memory."""
        stays = self._imported is None or self._unclean or any(one.pids for one in self._extensions)
        if self._hand_over and not self.run and not stays and all(one.is_idle for one in self.connections):
            self._hand_over(self._store_ports, self._imported)

    def _patience_s(self) -> float | None:
        """Return for how many seconds nothing is due; None: until a message comes."""
        if self._pieces is not None:
            return 0.0
        if self._stacks_due is not None:
            return max(0.0, self._stacks_due - time.monotonic())
        if self.run is not None:
            return min(_MEMORY_TICK_S if self.config.memory_bytes else _RUN_TICK_S, self.run.traces_every_s)
        return _TICK_S if self._heap is not None else None  # hundreds of idle nodes may share one machine

    def _step(self, ready: set[int], wake_r: int) -> None:
        self._for_run(lambda run: run.pass_on(ready))
        for extension in self._extensions:
            extension.pass_on(ready)
        if not ready and self.run is None and self._heap is not None:  # idle for a second
            self._heap.gather()
        if wake_r in ready:
            os.read(wake_r, 4096)
            self._for_run(NodeRun.reap)
            self._traces_due = 0.0
        if self._listener is not None and self._listener.fileno() in ready:
            with suppress(OSError):  # the client has gone, or too many files are open
                accepted, _ = self._listener.accept()
                self.connections.append(wire.Connection(accepted.fileno(), accepted.fileno(), accepted))
        for connection in list(self.connections):
            connection.flush()
            if connection.read_fd in ready:
                self._read(connection)
        now = time.monotonic()
        self._for_run(NodeRun.poll)
        self._for_run(lambda run: self._send_traces(run, now))
        self._for_run(self._send_pieces)
        if self.run is not None and now - self._last_message_at > self.run.claim.lease_s:
            self._end_run(f"its command did not report for {self.run.claim.lease_s:g} s (was it stopped?)")
        if self._stacks_due is not None and now >= self._stacks_due:
            self._stacks_due = None
            self._for_run(lambda run: run.report_stacks())

    def _send_traces(self, run: NodeRun, now: float) -> None:
        """Send the traces at the requested interval, or at once if congestion stopped the last transfer."""
        if not run.send.congested and now >= self._traces_due:
            self._traces_due = 0.0 if run.send_traces() else now + run.traces_every_s

    def _read(self, connection: wire.Connection) -> None:
        if (chunk := connection.receive()) == b"":
            if connection.owner is None:  # a container's standard input: the engine has closed it
                self._leave()
            self.connections.remove(connection)
            if self.run is not None and self.run.send.client is connection:
                self._end_run()
            connection.owner.close()  # type: ignore[union-attr]
        for message in connection.reader.feed(chunk or b""):
            self.handle(connection, message)

    def _leave(self, *_: Any) -> None:
        self._end_run()
        processes.kill_descendants(set(), deadline_s=1.0)
        os._exit(0)


def main() -> None:
    """Run the agent of a container; the last argument is the configuration."""
    config = typed.read_typed(messages.Config, json.loads(sys.argv[-1]))
    sys.argv = [""]
    serve_node(config)


def serve_node(config: messages.Config) -> None:
    """Become the agent of a node and never return."""
    if config.peers:
        if not (close := hooks("network")):
            sys.exit("cannot close its network for a strict cluster: the feature strict is missing")
        close[0](config.peers)
    processes.become_subreaper()
    os.umask(0o022)
    run_folders.clear_folders(config.root)
    warm.import_torch()
    Agent(config, leftovers.prepare_container(config) if config.container else None).serve()
