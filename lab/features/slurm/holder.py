"""The process on the login node that holds a cluster's agents: each in a job step, by its standard streams.

It offers a socket for every node. What a client says there goes to the agent, whole lines of it; what the agent says
goes to every client. Whoever has the cluster's folder may ask at another socket for the agent of a node that does not
run: a line with the name of the node, answered by what is in the way, or nothing. When this process ends, however it
does, the agents' standard input ends too, and the allocation is given back.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import sys
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from lab.errors import EngineUnavailable
from lab.features.slurm.command import ask
from lab.node.messages.agent import ended_file
from lab.node.messages.wire import open_listener

_CHUNK_BYTES = 1 << 18
"""So much is passed on at a time."""
_MOST_WAITING_BYTES = 1 << 22
"""More is not read as long as so much waits to be passed on."""
_TAKEN_S = 10.0
"""A client that takes nothing for so long is let go: the others wait for it."""
_BACKLOG = 4096
_LOOK_S = 15.0
_ASKED_TIMEOUT_S = 1.0
_LONGEST_LINE = 1024
_GIVE_BACK = 'cat >/dev/null; exec scancel --quiet "$0"'
"""A shell of its own does it, so that it is done too when this process is killed."""


class HeldNode:
    """A node: the step in which its agent runs, and who is connected.

    Args:
        argv: what starts the step.
        path: where it is reached.
        first: what the agent is sent first.
    """

    def __init__(self, argv: list[str], path: str, first: bytes) -> None:
        self._argv, self._path, self._first = argv, path, first
        self._clients: set[StreamWriter] = set()
        self.running = False
        """Whether its step has not ended, as far as was seen."""

    async def start(self) -> None:
        """Start the step, and listen."""
        self.running = True
        pipe = asyncio.subprocess.PIPE
        with self._new_log() as said:
            step = await asyncio.create_subprocess_exec(
                *self._argv, stdin=pipe, stdout=pipe, stderr=said, start_new_session=True, limit=_CHUNK_BYTES
            )
        assert step.stdin is not None
        _bound(step.stdin)
        step.stdin.write(self._first)
        self._agent = step.stdin
        server = await asyncio.start_unix_server(
            self._listen_to, sock=open_listener(self._path), backlog=_BACKLOG, limit=_CHUNK_BYTES
        )
        self._passing_on = asyncio.create_task(self._pass_on(step, server))

    def _new_log(self) -> IO[bytes]:
        """Where the step says what it says; nothing is left that one before it had said."""
        for path in (ended_file(self._path), f"{self._path}.said"):
            with suppress(FileNotFoundError):
                os.unlink(path)
        return open(f"{self._path}.said", "wb")

    def _write_end(self, code: int) -> None:
        with suppress(OSError):  # the cluster is being removed
            new = Path(f"{ended_file(self._path)}.new")
            new.write_text(str(code if code >= 0 else 128 - code))
            new.rename(ended_file(self._path))

    async def _pass_on(self, step: asyncio.subprocess.Process, server: asyncio.AbstractServer) -> None:
        """Pass on what the agent says until its step ends; then say how it did, and nobody is reached here any more."""
        assert step.stdout is not None
        begun = b""
        while data := await step.stdout.read(_CHUNK_BYTES):
            lines, newline, begun = (begun + data).rpartition(b"\n")
            if newline:
                await asyncio.gather(*(_send(client, lines + newline) for client in [*self._clients]))
        code = await step.wait()
        self._write_end(code)
        server.close()
        self.running = False
        for client in self._clients:
            client.close()

    async def _listen_to(self, reader: StreamReader, client: StreamWriter) -> None:
        """Pass on what a client says until it goes."""
        agent, begun = self._agent, b""
        _bound(client)
        self._clients.add(client)
        with suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                lines, newline, begun = (begun + data).rpartition(b"\n")
                if newline:
                    agent.write(lines + newline)
                    with suppress(OSError):  # the step has ended; what it said last is still to be passed on
                        await agent.drain()
        self._clients.discard(client)
        client.close()


def _bound(writer: StreamWriter) -> None:
    """Have `drain` wait where too much waits to be written, until some of it is."""
    writer.transport.set_write_buffer_limits(_MOST_WAITING_BYTES, _MOST_WAITING_BYTES - _CHUNK_BYTES)


async def _send(client: StreamWriter, data: bytes) -> None:
    """Send something to a client, which is let go where it takes nothing."""
    client.write(data)
    try:
        await asyncio.wait_for(client.drain(), _TAKEN_S)
    except (OSError, asyncio.TimeoutError):
        client.transport.abort()


async def hold(folder: Path, job: str, argvs: dict[str, list[str]]) -> None:
    """Start every agent, then pass on what is said until there is nothing to hold any more.

    Args:
        folder: that of the cluster.
        job: its number in Slurm.
        argvs: what starts each agent, by the name of its node.
    """
    life, first = lock_life(folder), (folder / "agent.bin").read_bytes()
    nodes = {name: HeldNode(argv, str(folder / f"{name}.sock"), first) for name, argv in argvs.items()}

    async def answer(reader: StreamReader, client: StreamWriter) -> None:
        """Start a node that somebody asks for."""
        with suppress(OSError, asyncio.TimeoutError):  # whoever asks has gone
            name = (await asyncio.wait_for(reader.read(_LONGEST_LINE), _ASKED_TIMEOUT_S)).decode("utf-8", "replace")
            node = nodes.get(name.strip())
            problem = (
                f"there is no node {name.strip()!r}" if node is None else "it runs already" if node.running else ""
            )
            if node is not None and not problem:
                await node.start()
            client.write(f"{problem}\n".encode())
        client.close()

    async with await asyncio.start_unix_server(answer, sock=open_listener(str(folder / "holder.sock"))):
        for node in nodes.values():
            await node.start()
        while True:
            await asyncio.sleep(_LOOK_S)
            if not life.exists() or not (any(node.running for node in nodes.values()) or _is_known(job)):
                return


def lock_life(folder: Path) -> Path:
    """Lock the file that is locked as long as this process lives, and write its pid there; returns its path."""
    life = folder / "holder.lock"
    descriptor = os.open(life, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return life


def _is_known(job: str) -> bool:
    """Whether Slurm has a job still, or does not answer."""
    try:
        return bool(ask("squeue", "--noheader", f"--jobs={job}", "--format=%T").strip())
    except EngineUnavailable:
        return True


def main() -> None:
    """Entry point: the last argument says what to hold."""
    said: dict[str, Any] = json.loads(sys.argv[-1])
    argv = ["sh", "-c", _GIVE_BACK, said["job"]]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True):
        asyncio.run(hold(Path(said["folder"]), said["job"], said["argvs"]))
