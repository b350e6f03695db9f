"""What a starter starts in the place of a worker: asks the agent for one, and lives and ends as that does.

Run as a script without the packages of the node, since each worker waits for it: `python -I -S -E stub.py SCRIPT ARGS`.
The agent is told of each signal by a byte, which the interpreter itself writes.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import sys

SOCKET_VARIABLE = "LAB_JOIN_SOCKET"
PASSED_VARIABLES = ("PMI_FD",)
"""Where these name a descriptor, the worker has it under the same number."""
_CANNOT_BE_PASSED_ON = (
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGPIPE),
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS, signal.SIGTRAP),
)


def main() -> None:
    """Become a worker's stand-in, and never return."""
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        agent.connect(os.environ.get(SOCKET_VARIABLE, ""))
        _introduce(agent)
    except OSError as error:
        sys.exit(f"this process cannot become a worker: {error}")
    agent.setblocking(False)
    signal.set_wakeup_fd(agent.fileno(), warn_on_full_buffer=False)
    for number in signal.valid_signals() - {*_CANNOT_BE_PASSED_ON}:
        try:
            signal.signal(number, lambda *_: None)
        except (OSError, ValueError):  # the C library keeps a few for itself
            pass
    _end_as(_hear(agent))


def _introduce(agent: socket.socket) -> None:
    """Say who this is: the environment tells the rank."""
    _let_others_write_the_error_file()
    numbers = [int(os.environ[name]) for name in PASSED_VARIABLES if os.environ.get(name, "").isdigit()]
    told = {"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "passed": numbers}
    line = json.dumps(told).encode() + b"\n"
    sent = socket.send_fds(agent, [line], numbers) if numbers else agent.send(line)
    agent.sendall(line[sent:])


def _let_others_write_the_error_file() -> None:
    """The folder of `TORCHELASTIC_ERROR_FILE` is of torchrun's user alone, and the worker is another one."""
    folder, folders = os.path.dirname(os.environ.get("TORCHELASTIC_ERROR_FILE", "")), []
    while len(folder) > 1 and not os.path.basename(folder).startswith("torchelastic_"):
        folders.append(folder)
        folder = os.path.dirname(folder)
    for one in (folder, *folders) if len(folder) > 1 else ():
        if os.stat(one).st_uid == os.geteuid():
            os.chmod(one, 0o777)


def _hear(agent: socket.socket) -> bytes:
    """What the agent says at the end; nothing where it has gone."""
    told = b""
    while not told.endswith(b"\n"):
        select.select([agent], [], [])
        try:
            piece = agent.recv(65536)
        except BlockingIOError:
            continue
        if not piece:
            return b""
        told += piece
    return told


def _end_as(told: bytes) -> None:
    """End as the worker did: `exit CODE`, `signal NUMBER`, or with what the agent says in the place of either."""
    what, _, value = told.decode("utf-8", "replace").strip().partition(" ")
    if what == "exit":
        os._exit(int(value))
    if what == "signal":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(int(value), signal.SIG_DFL) if int(value) != signal.SIGKILL else None
        os.kill(os.getpid(), int(value))
    print(value or "the agent of this node has gone", file=sys.stderr, flush=True)
    os._exit(1)


if __name__ == "__main__":
    main()
