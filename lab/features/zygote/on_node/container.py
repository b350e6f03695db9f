"""The zygote of a cluster of containers: imports torch once, and forks agents into the nodes.

It has its own container next to the nodes, and the nodes cannot see it: it is in the machine's PID namespace, they are
not, and it has no network. Requests come over standard input, see `entering`. A forked agent is no child of the
zygote: it ends with the first process of its node, and has the privileges of that process.
"""

from __future__ import annotations

import io
import json
import os
import signal
import tarfile
from contextlib import closing, suppress
from typing import NoReturn

from ....node import agent, leftovers, warm
from ....node.messages import typed, wire
from ....node.messages.agent import Config
from . import entering

_CHUNK_BYTES = 1 << 16
_LONGEST_PROBLEM = 1000
_FIRST_PID = 1
_ARRIVED = signal.SIGUSR1
"""The signal by which an agent reports itself to the first process of its node."""


def main(archive: bytes) -> NoReturn:
    """Import the modules of agents and scripts, then serve requests until no client is left.

    Args:
        archive: A tar of an agent's folder of code.
    """
    own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    warm.import_torch()
    warm.prepare_for_forks()  # once for all nodes, instead of once per node after the first script that needs it
    open_on_image, reader = leftovers.open_on_image(), wire.LineReader()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies: the node would see the process that forked its agent
    while chunk := os.read(0, _CHUNK_BYTES):
        for asked in [one for one in reader.feed(chunk) if isinstance(one, entering.Enter)]:
            try:
                with closing(entering.FirstProcess(asked.pid, asked.container)) as first:
                    pids = first.open("ns/pid")
                    entering.enter_namespace(pids)
                    os.close(pids)
                    if os.fork() == 0:
                        _enter(first, archive, open_on_image)
            except (OSError, entering.Unlike) as error:
                _answer(1, entering.Entered(asked.container, str(error)))
            finally:
                entering.enter_namespace(own_pids)
    os._exit(0)


def _answer(stream: int, answer: entering.Entered) -> None:
    with suppress(OSError):
        os.write(stream, wire.encode_message(answer._replace(problem=answer.problem[:_LONGEST_PROBLEM])))


def _enter(first: entering.FirstProcess, archive: bytes, open_on_image: tuple[str, ...]) -> NoReturn:
    """In a child of the zygote, inside the node's PID namespace: enter the node, and fork the agent.

    The parent is outside of that namespace, so when this process ends, the node's first process adopts the agent.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stream = 1
    try:
        first.join_groups()
        wanted = entering.read_privileges(first.read("status"))
        filters = entering.filters_of(_FIRST_PID) if wanted["Seccomp"] != "0" else []
        config = typed.read_typed(Config, json.loads(first.read("cmdline").split("\0")[-2]))
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
        entering.adopt_privileges(wanted, filters)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(config.import_root)
        os.kill(_FIRST_PID, _ARRIVED)
    except BaseException as error:
        _answer(stream, entering.Entered(first.container, f"{type(error).__name__}: {error}"))
        os._exit(1)
    _answer(stream, entering.Entered(first.container))
    os.close(stream)
    agent.serve_node(config)
    os._exit(1)
