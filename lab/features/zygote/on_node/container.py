"""The zygote of a cluster of containers: imports torch once, and forks the agents of nodes into them.

It lives in a container of its own, beside those of the nodes, from which none of it can be seen: it is in the machine's
namespace of processes and they are not, and it has no network. It is asked over its standard input, see
`messages`. An agent that it made is no child of it: it lives and dies with the first process of its node,
and may do what that may.
"""

from __future__ import annotations

import io
import json
import os
import selectors
import signal
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

from ....node import agent, strays, warm
from ....node.messages import typed, wire
from ....node.messages.agent import Config
from . import entering
from .entering import Enter, Entered, FirstProcess, Unlike, enter_namespace

_CHUNK_BYTES = 1 << 16
_LONGEST_PROBLEM = 4096
_FIRST_PID = 1
_ARRIVED = signal.SIGUSR1
"""By it an agent tells the first process of its node who it is."""


class ContainerZygote:
    """Forks agents into nodes.

    Args:
        archive: a tar of what an agent's folder of code holds.
    """

    def __init__(self, archive: bytes) -> None:
        self._files = _content(archive)
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._reader = wire.LineReader()
        self._asked: dict[int, tuple[int, str]] = {}
        """By where they say what is in the way: those that are about to enter a node, and by whom that was asked."""
        self._open_on_image: tuple[str, ...] = ()

    def prepare(self) -> None:
        """Import what all agents and their scripts need, and lay it out so that forks are cheap."""
        warm.import_torch()
        warm.prepare_many_forks()  # once for all nodes, and not by each after the first script that needs it
        self._open_on_image = strays.open_on_image()

    def serve(self) -> NoReturn:
        """Answer until nobody can ask any more."""
        with selectors.PollSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fd != 0:
                        selector.unregister(key.fd)
                        self._answer(key.fd)
                        continue
                    chunk = os.read(0, _CHUNK_BYTES)
                    if not chunk:
                        os._exit(0)
                    for asked in [one for one in self._reader.feed(chunk) if isinstance(one, Enter)]:
                        problem = self._fork(asked)
                        if isinstance(problem, int):
                            selector.register(problem, selectors.EVENT_READ)
                        else:
                            _say(Entered(asked.asked, problem))

    def _fork(self, asked: Enter) -> int | str:
        """Fork what will enter a node; returns where it says what is in the way, or what that is already."""
        try:
            first = FirstProcess(asked.pid, asked.container)
            pids = first.open("ns/pid")
        except (OSError, Unlike) as error:
            return f"{error}"
        said_r, said_w = os.pipe2(os.O_CLOEXEC)
        try:
            enter_namespace(pids)
            pid = os.fork()
            if pid == 0:
                _enter(first, said_w, self._files, self._open_on_image)
            enter_namespace(self._own_pids)
        except OSError as error:
            os.close(said_r)
            return f"{error}"
        finally:
            for descriptor in (pids, said_w):
                os.close(descriptor)
            first.close()
        self._asked[said_r] = pid, asked.asked
        return said_r

    def _answer(self, said: int) -> None:
        pid, asked = self._asked.pop(said)
        with open(said, "rb") as pipe:
            problem = pipe.read(_LONGEST_PROBLEM).decode("utf-8", "replace")
        _, status = os.waitpid(pid, 0)
        if status and not problem:
            problem = f"who should have entered it ended with status {status}"
        _say(Entered(asked, problem))


def _say(answer: Entered) -> None:
    with suppress(OSError):
        os.write(1, wire.encode(answer))


def _enter(first: FirstProcess, said: int, files: Mapping[str, bytes], open_on_image: tuple[str, ...]) -> NoReturn:
    """In a child of the zygote that is in the node's namespace of processes: go there, and fork the agent.

    Its parent is none of that namespace, so when this process ends the first one of the node becomes the agent's.
    """
    try:
        first.join_groups()
        wanted = entering.privileges(first.read("status"))
        filters = entering.filters_of(_FIRST_PID) if wanted["Seccomp"] != "0" else []
        config = typed.read(Config, json.loads(first.words()[-1]))
        config = config._replace(forked=True, open_on_image=open_on_image)
        environment, streams = first.environment(), first.streams()
        first.enter()
        pid = os.fork()
    except BaseException as error:
        os.write(said, f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    if pid:
        os._exit(0)
    try:
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.dup2(said, 3)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        os.set_inheritable(3, False)
        os.environ.clear()
        os.environ.update(environment)
        entering.take_over(wanted, filters)
        _write(files, config.import_root)
        os.kill(_FIRST_PID, _ARRIVED)
    except BaseException as error:
        os.write(3, f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    os.close(3)
    agent.serve(config)
    os._exit(1)


def _content(archive: bytes) -> dict[str, bytes]:
    """What is in a tar, by path."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        opened = ((entry.name, tar.extractfile(entry)) for entry in tar)
        return {name: file.read() for name, file in opened if file is not None}


def _write(files: Mapping[str, bytes], folder: str) -> None:
    for path, content in files.items():
        target = os.path.join(folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(content)


def main(archive: bytes) -> None:
    """Entry point."""
    zygote = ContainerZygote(archive)
    zygote.prepare()
    zygote.serve()
