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
import signal
import tarfile
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import NoReturn

from ....node import agent, strays, warm
from ....node.messages import typed, wire
from ....node.messages.agent import Config
from . import entering
from .entering import Enter, Entered, FirstProcess, Unlike, enter_namespace

_CHUNK_BYTES = 1 << 16
_LONGEST_PROBLEM = 1000
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
        self._open_on_image: tuple[str, ...] = ()

    def prepare(self) -> None:
        """Import what all agents and their scripts need, and lay it out so that forks are cheap."""
        warm.import_torch()
        warm.prepare_many_forks()  # once for all nodes, and not by each after the first script that needs it
        self._open_on_image = strays.open_on_image()

    def serve(self) -> NoReturn:
        """Do what is asked until nobody can ask any more."""
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who has forked an agent is gone at once: its node would see it
        while chunk := os.read(0, _CHUNK_BYTES):
            for asked in self._reader.feed(chunk):
                if isinstance(asked, Enter):
                    self._fork(asked)
        os._exit(0)

    def _fork(self, asked: Enter) -> None:
        """Fork what will enter a node, and answers."""
        try:
            first = FirstProcess(asked.pid, asked.container)
            with closing(first), open(first.open("ns/pid"), "rb") as pids:
                try:
                    enter_namespace(pids.fileno())
                    if os.fork() == 0:
                        _enter(first, asked.asked, self._files, self._open_on_image)
                finally:
                    enter_namespace(self._own_pids)
        except (OSError, Unlike) as error:
            _answer(1, Entered(asked.asked, str(error)))


def _answer(stream: int, answer: Entered) -> None:
    with suppress(OSError):
        os.write(stream, wire.encode(answer._replace(problem=answer.problem[:_LONGEST_PROBLEM])))


def _enter(first: FirstProcess, asked: str, files: Mapping[str, bytes], open_on_image: tuple[str, ...]) -> NoReturn:
    """In a child of the zygote that is in the node's namespace of processes: go there, and fork the agent.

    Its parent is none of that namespace, so when this process ends the first one of the node becomes the agent's.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stream = 1
    try:
        first.join_groups()
        wanted = entering.privileges(first.read("status"))
        filters = entering.filters_of(_FIRST_PID) if wanted["Seccomp"] != "0" else []
        config = typed.read(Config, json.loads(first.words()[-1]))
        config = config._replace(forked=True, open_on_image=open_on_image)
        environment, streams = first.environment(), first.streams()
        first.enter()
        if os.fork():
            os._exit(0)
        os.setsid()
        stream = os.dup(1)
        for number, one in enumerate(streams):
            os.dup2(one, number)
        stream = os.dup2(stream, 3, inheritable=False)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(environment)
        entering.take_over(wanted, filters)
        _write(files, config.import_root)
        os.kill(_FIRST_PID, _ARRIVED)
    except BaseException as error:
        _answer(stream, Entered(asked, f"{type(error).__name__}: {error}"))
        os._exit(1)
    _answer(stream, Entered(asked))
    os.close(stream)
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
