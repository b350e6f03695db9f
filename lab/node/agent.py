"""The agent: lives in a node from `lab up` to `lab down`, imports torch once, forks the workers of each run.

It has one thread, so that a fork is safe, and one loop. Messages come over standard input (a container) or over a
Unix socket (the local engine); see `wire`. One run at a time; a run whose client has gone silent ends with its lease.
"""

from __future__ import annotations

import gc
import json
import os
import select
import selectors
import signal
import socket
import sys
import time
from typing import Any

from . import processes, warm, wire
from .noderun import NodeRun
from .recorder import install as recorder
from .recorder.journal import boot_id
from .store import StoreError

_BACKLOG_BYTES = 1 << 20
"""Workers are not read while more than this waits to be sent: their pipes fill and they wait, nothing is lost."""
_TICK_S = 1.0
_MEMORY_TICK_S = 0.05
_STACK_WAIT_S = 0.25
_DRAIN_DEADLINE_S = 10.0
"""A client that has not taken anything for this long is not waited for."""


class Connection:
    """A pair of descriptors that a client is (or may be) at the other end of."""

    def __init__(self, read_fd: int, write_fd: int, owner: socket.socket | None = None) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        self.owner = owner
        self.reader = wire.LineReader()
        self.waiting: list[bytes] = []
        self.waiting_bytes = 0
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)

    def send(self, message: wire.Message) -> None:
        """Queue a message and send what can be sent."""
        line = wire.encode(message)
        self.waiting.append(line)
        self.waiting_bytes += len(line)
        self.flush()

    def flush(self) -> None:
        """Send what can be sent without waiting."""
        while self.waiting:
            data = self.waiting[0]
            try:
                sent = os.write(self.write_fd, data[:_BACKLOG_BYTES])
            except BlockingIOError:
                return
            except OSError:  # nobody listens any more
                self.waiting, self.waiting_bytes = [], 0
                return
            self.waiting_bytes -= sent
            if sent == len(data):
                self.waiting.pop(0)
            else:
                self.waiting[0] = data[sent:]

    @property
    def congested(self) -> bool:
        """Whether so much waits to be sent that nothing should be added."""
        return self.waiting_bytes > _BACKLOG_BYTES

    def drain(self) -> None:
        """Wait until it is not congested; a client that takes nothing for ten seconds gets nothing any more."""
        while self.congested:
            if not select.select([], [self.write_fd], [], _DRAIN_DEADLINE_S)[1]:
                self.waiting, self.waiting_bytes = [], 0
            self.flush()


class Agent:
    """The state of one node.

    Args:
        config: `node`, `root` (a folder of its own), `container`, `import_root`, `socket` (None: standard streams),
            `memory_bytes` (a limit for the agent to enforce; None where the kernel does).
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.connections: list[Connection] = []
        self.listener: socket.socket | None = None
        self.run: NodeRun | None = None
        self.client: Connection | None = None
        self.owner = ""
        self.lease_s = 0.0
        self.heard = 0.0
        self.claimed_at = 0.0
        self.stacks_due: float | None = None
        self.traces_due = 0.0
        """Monotonic time at which traces are passed on next; 0: something was left, because too much waited."""
        self.memory_at_start = 0

    # -- messages

    def handle(self, connection: Connection, message: wire.Message) -> None:
        """Act on one message; every error becomes an answer, never the end of the agent."""
        action = getattr(self, f"_on_{message.get('op')}", None)
        if action is None:
            connection.send({"ev": "refused", "reason": f"unknown message {message.get('op')!r}"})
            return
        if message.get("run") is not None and self.run is not None and message["run"] == self.run.run:
            self.heard = time.monotonic()
        try:
            action(connection, message)
        except Exception as error:
            connection.send(
                {"ev": "refused", "op": message.get("op"), "run": message.get("run"), "reason": _reason(error)}
            )

    def _on_hello(self, connection: Connection, message: wire.Message) -> None:
        import torch

        connection.send(
            {
                "ev": "hello",
                "id": message.get("id"),
                "node": self.config["node"],
                "python": sys.version.split()[0],
                "torch": torch.__version__,
                "pid": os.getpid(),
                "time": time.time(),
                "run": self.run.run if self.run else None,
            }
        )

    def _on_claim(self, connection: Connection, message: wire.Message) -> None:
        if self.run is not None:
            if message["owner"] != self.owner:
                age = time.time() - self.claimed_at
                connection.send({"ev": "busy", "run": self.run.run, "owner": self.owner, "age_s": age})
                return
            self._end_run()  # whoever can claim holds the owner's lock: the earlier client is dead
        self.owner, self.client = message["owner"], connection
        self.lease_s, self.heard, self.claimed_at = message["lease_s"], time.monotonic(), time.time()
        options = {
            "uid": message["uid"],
            "gid": message["gid"],
            "cold": message["cold"],
            "container": self.config["container"],
            "import_root": self.config["import_root"],
            "memory_bytes": self.config.get("memory_bytes"),
            "trace": message.get("trace"),
        }
        self.run = NodeRun(message["run"], self.config["root"], options, self._emit)
        connection.send({"ev": "claimed", "run": message["run"], "time": time.time(), "boot": boot_id()})

    def _emit(self, message: wire.Message) -> None:
        if self.client is not None and self.run is not None:
            self.client.send({**message, "run": self.run.run})

    def _on_files(self, connection: Connection, message: wire.Message) -> None:
        self._my_run(message).take_files(message["data"], message["last"])

    def _on_prepare(self, connection: Connection, message: wire.Message) -> None:
        self._my_run(message).prepare(message["workers"], message.get("master"))
        self._emit({"ev": "prepared", "time": time.time()})

    def _on_go(self, connection: Connection, message: wire.Message) -> None:
        self._my_run(message).go()

    def _on_ping(self, connection: Connection, message: wire.Message) -> None:
        self._my_run(message)

    def _on_stop(self, connection: Connection, message: wire.Message) -> None:
        self._my_run(message).stop(signal.SIGKILL if message["hard"] else signal.SIGTERM)

    def _on_stacks(self, connection: Connection, message: wire.Message) -> None:
        self._my_run(message).request_stacks()
        self.stacks_due = time.monotonic() + _STACK_WAIT_S

    def _on_check(self, connection: Connection, message: wire.Message) -> None:
        self._my_run(message).check(message["check"], message["results"], message["env"])

    def _on_finish(self, connection: Connection, message: wire.Message) -> None:
        run = self._my_run(message)
        left = run.clean(lambda: connection.congested, connection.drain)
        self._emit({"ev": "finished", "left": left, "time": time.time()})
        self.run = self.client = None
        if run.imported:  # what one script needed, the next one is likely to need: it shall not wait for it
            connection.flush()
            warm.import_frozen(name for name in warm.missing_modules() if name in run.imported)

    def _my_run(self, message: wire.Message) -> NodeRun:
        if self.run is None or self.run.run != message.get("run"):
            raise ValueError(f"run {message.get('run')!r} does not have {self.config['node']}")
        return self.run

    def _end_run(self) -> None:
        if self.run is not None:
            self.client = None
            self.run.clean()
            self.run = None

    # -- the loop

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
                selector.register(connection.read_fd, selectors.EVENT_READ)
                if connection.waiting:
                    if connection.write_fd == connection.read_fd:
                        selector.modify(connection.read_fd, selectors.EVENT_READ | selectors.EVENT_WRITE)
                    else:
                        selector.register(connection.write_fd, selectors.EVENT_WRITE)
                congested |= connection.congested
            if self.run is not None and not congested:
                for fd in self.run.descriptors():
                    selector.register(fd, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(self._patience())}
            selector.close()
            self._step(ready, wake_r)

    def _patience(self) -> float:
        if self.stacks_due is not None:
            return max(0.0, self.stacks_due - time.monotonic())
        return _MEMORY_TICK_S if self.run is not None and self.config.get("memory_bytes") else _TICK_S

    def _step(self, ready: set[int], wake_r: int) -> None:
        if self.run is not None:
            for fd in self.run.descriptors():
                if fd in ready:
                    self.run.read(fd)
        if wake_r in ready:
            os.read(wake_r, 4096)
            if self.run is not None:
                self.run.reap()
                self.traces_due = 0.0
        if self.listener is not None and self.listener.fileno() in ready:
            accepted, _ = self.listener.accept()
            self.connections.append(Connection(accepted.fileno(), accepted.fileno(), accepted))
        for connection in list(self.connections):
            connection.flush()
            if connection.read_fd in ready:
                self._read(connection)
        now = time.monotonic()
        if self.run is not None:
            self.run.watch_memory()
            self._send_traces(now)
            if now - self.heard > self.lease_s:
                self._end_run()
        if self.stacks_due is not None and now >= self.stacks_due:
            self.stacks_due = None
            if self.run is not None:
                self.run.report_stacks()

    def _send_traces(self, now: float) -> None:
        """Pass on the traces once a second, and at once what was left when too much waited to be sent."""
        client = self.client
        if self.run is None or client is None or client.congested or now < self.traces_due:
            return
        left = self.run.send_traces(lambda: client.congested)
        self.traces_due = 0.0 if left else now + _TICK_S

    def _read(self, connection: Connection) -> None:
        try:
            chunk = os.read(connection.read_fd, 1 << 18)
        except BlockingIOError:
            return
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            self._disconnect(connection)
            return
        for message in connection.reader.feed(chunk):
            self.handle(connection, message)

    def _disconnect(self, connection: Connection) -> None:
        if connection.owner is None:  # a container's standard input: its engine is done with this node
            self._leave()
        self.connections.remove(connection)
        if self.client is connection:
            self._end_run()
        connection.owner.close()  # type: ignore[union-attr]

    def _open(self) -> None:
        path = self.config.get("socket")
        if path is None:
            out = os.dup(1)
            os.set_inheritable(out, False)
            os.dup2(2, 1)
            self.connections.append(Connection(0, out))
            return
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        temporary = f"{path}.new"
        self.listener.bind(temporary)
        self.listener.listen(16)
        self.listener.setblocking(False)
        os.rename(temporary, path)  # whoever sees it can connect

    def _leave(self, *_: Any) -> None:
        self._end_run()
        processes.kill_descendants(set(), deadline_s=1.0)
        os._exit(0)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, (StoreError, OSError)) else f"{type(error).__name__}: {error}"


def import_torch() -> None:
    """Import what nearly every script imports, and make it cheap to fork.

    Raises:
        ImportError: there is no torch.
    """
    gc.disable()
    import torch

    repr(torch.zeros(1))  # what the first tensor printed imports and caches: up to 10 ms in every worker
    recorder.find_compiled()
    warm.import_frozen(("torch.distributed", "torch.nn.parallel", *recorder.PRELOADED))


def main() -> None:
    """Entry point in a container: the configuration is the last argument."""
    config = json.loads(sys.argv[-1])
    sys.argv = [""]
    serve(config)


def serve(config: dict[str, Any]) -> None:
    """Become the agent of a node and never return."""
    processes.become_subreaper()
    os.umask(0o022)
    os.makedirs(config["root"], exist_ok=True)
    if config["container"] and os.path.isdir("/shared") and os.geteuid() == 0:
        os.chmod("/shared", 0o1777)
    import_torch()
    Agent(config).serve()
