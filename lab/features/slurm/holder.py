"""The process on the login node that holds a cluster's agents, each in a job step, by its standard streams.

It has a socket for every node. It sends whole lines from a client to the agent, and the agent's output to every
client. Another socket takes requests for the agent of a node that does not run: a client sends the name of the node,
and receives the reason for a refusal, or an empty line. Access needs the cluster's folder. When this process ends for
any reason, the agents' standard input ends too, and Slurm releases the allocation.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from lab.errors import EngineUnavailable
from lab.features.slurm.command import query_slurm
from lab.node.messages.agent import ended_file
from lab.node.messages.wire import open_listener

_CHUNK_BYTES = 1 << 18
"""Most bytes that are passed on at a time."""
_MOST_WAITING_BYTES = 1 << 22
"""Stop reading while this many bytes wait to be passed on."""
_READ_TIMEOUT_S = 10.0
"""Disconnect a client that reads nothing for this long, because the others wait for it."""
_BACKLOG = 4096
_POLL_S, _BEAT_POLL_S = 15.0, 1.0
_ASKED_TIMEOUT_S = 1.0
_LONGEST_LINE = 1024
_RELEASE = 'cat >/dev/null; exec "$0" "$@"'
"""A separate shell does it, so that it also happens when this process is killed."""


class HeldNode:
    """A node: the step in which its agent runs, and its clients.

    Args:
        argv: Starts the step.
        path: Of its socket.
        first: The first input of the agent.
    """

    def __init__(self, argv: list[str], path: str, first: bytes) -> None:
        self._argv, self._path, self._first = argv, path, first
        self._clients: set[asyncio.StreamWriter] = set()
        self.running = False
        """Whether its step has not ended, as far as known."""
        self._size = self._silent_s = 0.0

    def end_silent(self, limit_s: float) -> None:
        """End the step of a node that writes no more beats to its log: its machine may be lost. Call it every second.

        It counts calls, because this machine may have slept. The first beat may take long.
        """
        with suppress(OSError):
            size = os.stat(f"{self._path}.said").st_size
            self._silent_s = self._silent_s + _BEAT_POLL_S if size == self._size and size else 0.0
            self._size = size
        if self.running and self._silent_s > limit_s:
            self._lost = True
            self._step.kill()

    async def start(self) -> None:
        """Start the step, and listen."""
        self.running, self._lost, self._silent_s = True, False, 0.0
        pipe = asyncio.subprocess.PIPE
        with self._new_log() as log:
            step = await asyncio.create_subprocess_exec(
                *self._argv, stdin=pipe, stdout=pipe, stderr=log, start_new_session=True, limit=_CHUNK_BYTES
            )
        assert step.stdin is not None
        _bound(step.stdin)
        step.stdin.write(self._first)
        self._agent, self._step = step.stdin, step
        server = await asyncio.start_unix_server(
            self._listen_to, sock=open_listener(self._path), backlog=_BACKLOG, limit=_CHUNK_BYTES
        )
        self._passing_on = asyncio.create_task(self._pass_on(step, server))

    def _new_log(self) -> IO[bytes]:
        """Open the log of the step, without anything of an earlier step."""
        for path in (ended_file(self._path), f"{self._path}.said"):
            with suppress(FileNotFoundError):
                os.unlink(path)
        return open(f"{self._path}.said", "wb")

    def _write_end(self, code: int) -> None:
        with suppress(OSError):  # the cluster is being removed, and its folder with it
            new = Path(f"{ended_file(self._path)}.new")
            new.write_text(str(code if code >= 0 else 128 - code))
            new.rename(ended_file(self._path))

    async def _pass_on(self, step: asyncio.subprocess.Process, server: asyncio.AbstractServer) -> None:
        """Pass on the agent's output until its step ends; then report its exit code, and close the socket."""
        assert step.stdout is not None
        begun = b""
        while data := await step.stdout.read(_CHUNK_BYTES):
            lines, newline, begun = (begun + data).rpartition(b"\n")
            if newline:
                await asyncio.gather(*(_send(client, lines + newline) for client in [*self._clients]))
        code = await step.wait()
        self._write_end(0 if self._lost else code)
        server.close()
        self.running = False
        for client in self._clients:
            client.close()

    async def _listen_to(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Pass on a client's input until it disconnects."""
        agent, begun = self._agent, b""
        _bound(client)
        self._clients.add(client)
        with suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                lines, newline, begun = (begun + data).rpartition(b"\n")
                if newline:
                    agent.write(lines + newline)
                    with suppress(OSError):  # the step has ended; its last output still has to be passed on
                        await agent.drain()
        self._clients.discard(client)
        client.close()


def _bound(writer: asyncio.StreamWriter) -> None:
    """Let `drain` wait while too much output is pending."""
    writer.transport.set_write_buffer_limits(_MOST_WAITING_BYTES, _MOST_WAITING_BYTES - _CHUNK_BYTES)


async def _send(client: asyncio.StreamWriter, data: bytes) -> None:
    """Send data to a client, and disconnect it if it reads nothing."""
    client.write(data)
    try:
        await asyncio.wait_for(client.drain(), _READ_TIMEOUT_S)
    except (OSError, asyncio.TimeoutError):
        client.transport.abort()


async def hold_agents(
    folder: Path, argvs: dict[str, list[str]], is_known: Callable[[], bool], silence_s: float = 0.0
) -> None:
    """Start every agent, and pass on messages until the cluster is removed or all agents have ended.

    Args:
        folder: Of the cluster.
        argvs: The command of each agent, by the name of its node.
        is_known: Whether the scheduler still knows the cluster.
        silence_s: End an agent, with exit code 0, whose log does not grow for this long; 0: no limit.
    """
    life, first = lock_life(folder), (folder / "agent.bin").read_bytes()
    nodes = {name: HeldNode(argv, str(folder / f"{name}.sock"), first) for name, argv in argvs.items()}

    async def answer(reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Start a node that a client requests."""
        with suppress(OSError, asyncio.TimeoutError):  # the client has disconnected
            name = (await asyncio.wait_for(reader.read(_LONGEST_LINE), _ASKED_TIMEOUT_S)).decode("utf-8", "replace")
            node, problem = nodes.get(name.strip()), ""
            if node is None:
                problem = f"there is no node {name.strip()!r}"
            elif node.running:
                problem = "it runs already"
            else:
                await node.start()
            client.write(f"{problem}\n".encode())
        client.close()

    async with await asyncio.start_unix_server(answer, sock=open_listener(str(folder / "holder.sock"))):
        for node in nodes.values():
            await node.start()
        waited_s = 0.0
        while True:
            await asyncio.sleep(_BEAT_POLL_S if silence_s else _POLL_S)
            waited_s += _BEAT_POLL_S if silence_s else _POLL_S
            for node in nodes.values() if silence_s else ():
                node.end_silent(silence_s)
            if waited_s >= _POLL_S:
                waited_s = 0.0
                if not life.exists() or not (any(node.running for node in nodes.values()) or is_known()):
                    return


def lock_life(folder: Path) -> Path:
    """Lock a file for the life of this process, write its pid there, and return the path."""
    life = folder / "holder.lock"
    descriptor = os.open(life, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return life


def _is_known(job: str) -> bool:
    """Return whether Slurm still knows a job, or does not answer."""
    with suppress(EngineUnavailable):
        return bool(query_slurm("squeue", "--noheader", f"--jobs={job}", "--format=%T").strip())
    return True


def hold_until_end(
    request: dict[str, Any], release: list[str], is_known: Callable[[], bool], silence_s: float = 0.0
) -> None:
    """Hold the agents of a request, see `hold_agents`; then, and after a kill, run the command `release`."""
    with subprocess.Popen(["sh", "-c", _RELEASE, *release], stdin=subprocess.PIPE, start_new_session=True):
        asyncio.run(hold_agents(Path(request["folder"]), request["argvs"], is_known, silence_s))


def main() -> None:
    """Hold the agents that the last argument describes."""
    request: dict[str, Any] = json.loads(sys.argv[-1])
    job = request["job"]
    hold_until_end(request, ["scancel", "--quiet", job], lambda: _is_known(job))
