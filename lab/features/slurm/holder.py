"""The process on the login node that holds a cluster's agents: each in a job step, by its standard streams.

It offers a socket for every node. What a client says there goes to the agent, whole lines of it; what the agent says
goes to every client. Whoever has the cluster's folder may ask at another socket for the agent of a node that does not
run: a line with the name of the node, answered by what is in the way, or nothing. When this process ends, however it
does, the agents' standard input ends too, and the allocation is given back.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from lab.node.messages.agent import ended_file
from lab.node.messages.wire import listen

_MOST_WAITING_BYTES = 1 << 22
"""More is not read as long as so much waits to be passed on."""
_TAKEN_S = 10.0
"""A client that takes nothing for so long is let go: the others wait for it."""
_LAST_WORDS_S = 2.0
_LOOK_S = 15.0
_ASKED_TIMEOUT_S = 1.0
_LONGEST_LINE = 1024
_GIVE_BACK = 'cat >/dev/null; exec scancel --quiet "$0"'
"""A shell of its own does it, so that it is done too when this process is killed."""


class Held:
    """A node: the step in which its agent runs, and who is connected.

    Args:
        name: of the node.
        argv: what starts the step.
        path: where it is reached.
        first: what the agent is sent first.
    """

    def __init__(self, name: str, argv: list[str], path: str, first: bytes) -> None:
        self.name = name
        self._argv, self._path, self._first = argv, path, first
        self._step: subprocess.Popen[bytes] | None = None
        self._said_to: End | None = None
        self._heard_from: IO[bytes] | None = None
        self._begun = b""
        self._listener: socket.socket | None = None
        self._clients: list[Client] = []

    @property
    def running(self) -> bool:
        """Whether its step has not ended, as far as was seen."""
        return self._step is not None

    def start(self) -> None:
        """Start the step, and listen."""
        for path in (ended_file(self._path), f"{self._path}.said"):
            with suppress(FileNotFoundError):
                os.unlink(path)
        with open(f"{self._path}.said", "wb") as said:
            step = subprocess.Popen(
                self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, start_new_session=True
            )
        assert step.stdin is not None
        assert step.stdout is not None
        self._said_to = End(step.stdin.fileno())
        self._said_to.give(self._first)
        os.set_blocking(step.stdout.fileno(), False)
        self._step, self._heard_from, self._begun = step, step.stdout, b""
        self._listener = listen(self._path)

    def register(self, selector: selectors.BaseSelector) -> None:
        """Have a selector wait for what can be done for it."""
        if self._listener is not None:
            selector.register(self._listener, selectors.EVENT_READ)
        full = self._said_to is not None and len(self._said_to.waiting) > _MOST_WAITING_BYTES
        if self._said_to is not None and self._said_to.waiting:
            selector.register(self._said_to.descriptor, selectors.EVENT_WRITE)
        if self._heard_from is not None and not self._clients_full():
            selector.register(self._heard_from, selectors.EVENT_READ)
        for client in self._clients:
            wanted = 0 if full else selectors.EVENT_READ
            wanted |= selectors.EVENT_WRITE if client.waiting else 0
            if wanted:
                selector.register(client.descriptor, wanted)

    def _clients_full(self) -> bool:
        return any(len(client.waiting) > _MOST_WAITING_BYTES for client in self._clients)

    def pass_on(self, ready: set[int]) -> None:
        """Do what can be done."""
        if self._heard_from is not None and self._heard_from.fileno() in ready:
            self._hear()
        for client in list(self._clients):
            if client.descriptor in ready:
                self._listen_to(client)
        if self._listener is not None and self._listener.fileno() in ready:
            with suppress(OSError):  # whoever called has gone
                self._clients.append(Client(self._listener.accept()[0]))
        if self._said_to is not None:
            try:
                self._said_to.flush()
            except OSError:  # the step has ended
                self._said_to.waiting.clear()
        for client in list(self._clients):
            self._tell(client)

    def _hear(self) -> bool:
        """Take what the agent says; whether there was anything."""
        assert self._heard_from is not None
        try:
            data = os.read(self._heard_from.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._heard_from.close()
            self._heard_from = None
            return False
        whole, newline, self._begun = (self._begun + data).rpartition(b"\n")
        for client in self._clients if newline else ():
            client.give(whole + newline)
        return True

    def _listen_to(self, client: Client) -> None:
        try:
            data = os.read(client.descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._let_go(client)
            return
        whole, newline, client.begun = (client.begun + data).rpartition(b"\n")
        if newline and self._said_to is not None:
            self._said_to.give(whole + newline)

    def _tell(self, client: Client) -> None:
        try:
            client.flush()
        except OSError:
            self._let_go(client)
            return
        if len(client.waiting) > _MOST_WAITING_BYTES and time.monotonic() - client.taken > _TAKEN_S:
            self._let_go(client)

    def _let_go(self, client: Client) -> None:
        self._clients.remove(client)
        client.connection.close()

    def reap(self) -> None:
        """Say how the step ended, where it has; then nobody is reached here any more."""
        code = self._step.poll() if self._step is not None else None
        if code is None or self._step is None:
            return
        while self._heard_from is not None and self._hear():
            pass
        _write(ended_file(self._path), str(code if code >= 0 else 128 - code))
        if self._listener is not None:
            self._listener.close()
        for client in self._clients:
            with suppress(OSError):  # it has gone, or takes nothing
                client.connection.settimeout(_LAST_WORDS_S)
                client.connection.sendall(client.waiting)
            client.connection.close()
        for stream in filter(None, (self._step.stdin, self._heard_from)):
            with suppress(OSError):
                stream.close()
        self._step = self._said_to = self._heard_from = self._listener = None
        self._clients = []


class Holder:
    """What holds the nodes of one cluster.

    Args:
        folder: that of the cluster.
        job: its number in Slurm.
        argvs: what starts each agent, by the name of its node.
    """

    def __init__(self, folder: Path, job: str, argvs: dict[str, list[str]]) -> None:
        self._life = folder / "holder.lock"
        self._life_fd = os.open(self._life, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._life_fd, fcntl.LOCK_EX)
        os.ftruncate(self._life_fd, 0)
        os.write(self._life_fd, str(os.getpid()).encode())
        self._job = job
        first = (folder / "agent.bin").read_bytes()
        self._nodes = {name: Held(name, argv, str(folder / f"{name}.sock"), first) for name, argv in argvs.items()}
        self._asked = listen(str(folder / "holder.sock"))
        self._looked = time.monotonic()
        self._last = subprocess.Popen(["sh", "-c", _GIVE_BACK, job], stdin=subprocess.PIPE, start_new_session=True)

    def serve(self) -> None:
        """Start every agent, then pass on what is said until there is nothing to hold any more."""
        wake_r, wake_w = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        for held in self._nodes.values():
            held.start()
        while self._has_something_to_hold():
            with selectors.PollSelector() as selector:
                selector.register(wake_r, selectors.EVENT_READ)
                selector.register(self._asked, selectors.EVENT_READ)
                for held in self._nodes.values():
                    held.register(selector)
                ready = {key.fd for key, _ in selector.select(1.0)}
            for held in self._nodes.values():
                held.pass_on(ready)
            if wake_r in ready:
                with suppress(BlockingIOError):
                    os.read(wake_r, 4096)
                for held in self._nodes.values():
                    held.reap()
            if self._asked.fileno() in ready:
                with suppress(OSError):  # whoever asks has gone
                    self._answer(self._asked.accept()[0])

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(_ASKED_TIMEOUT_S)
            name = connection.recv(_LONGEST_LINE).decode("utf-8", "replace").strip()
            held = self._nodes.get(name)
            problem = f"there is no node {name!r}" if held is None else "it runs already" if held.running else ""
            if held is not None and not problem:
                held.start()
            connection.sendall(f"{problem}\n".encode())

    def _has_something_to_hold(self) -> bool:
        """Whether the cluster has not been removed, and an agent runs or Slurm has the job still."""
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return True
        self._looked = now
        if not self._life.exists():
            return False
        if any(held.running for held in self._nodes.values()):
            return True
        try:
            asked = ["squeue", "--noheader", f"--jobs={self._job}", "--format=%T"]
            said = subprocess.run(asked, capture_output=True, text=True, timeout=_LOOK_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return True
        return bool(said.stdout.strip()) or "invalid job id" not in said.stderr.lower()


def _write(path: str, text: str) -> None:
    with suppress(OSError):  # the cluster is being removed
        with open(f"{path}.new", "w") as file:
            file.write(text)
        os.rename(f"{path}.new", path)


def main() -> None:
    """Entry point: the last argument says what to hold."""
    said: dict[str, Any] = json.loads(sys.argv[-1])
    Holder(Path(said["folder"]), said["job"], said["argvs"]).serve()


CHUNK_BYTES = 1 << 18
"""So much is passed on at a time."""


class End:
    """One end of what is passed on: bytes that wait to be written to a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.waiting = bytearray()
        self.taken = time.monotonic()
        """When it last took something, or nothing waited."""
        os.set_blocking(descriptor, False)

    def flush(self) -> None:
        """Write what can be written.

        Raises:
            OSError: nobody is there.
        """
        with suppress(BlockingIOError):
            while self.waiting:
                del self.waiting[: os.write(self.descriptor, self.waiting[:CHUNK_BYTES])]
                self.taken = time.monotonic()

    def give(self, data: bytes) -> None:
        """Add to what waits."""
        if not self.waiting:
            self.taken = time.monotonic()
        self.waiting += data


class Client(End):
    """Who is connected to a node."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection.fileno())
        self.connection = connection
        self.begun = b""
        """The beginning of a line, of which the rest has not come."""
