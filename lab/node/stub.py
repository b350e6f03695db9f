"""What a starter starts in the place of a worker: asks the agent for one, and lives and ends as that does.

Each worker waits for it, so it is run without the packages of the node (`python -I -S -E stub.py SCRIPT ARGS`) and
imports only what the interpreter has in itself: `socket`, `signal` and `json` would take twice as long as all the rest.
The agent is told of each signal by a byte, which the interpreter itself writes.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import select
import sys

SOCKET_VARIABLE = "LAB_JOIN_SOCKET"
PASSED_VARIABLES = ("PMI_FD",)
"""Where these name a descriptor, the worker has it under the same number."""
SIZE_BYTES = 4
"""What is said at first has its size before it. Then come, with a NUL between them: how many words, the words, how many
descriptors, their numbers, the variables as NAME=VALUE."""
_NOT_PASSED_ON = (
    "SIGKILL",
    "SIGSTOP",
    "SIGCHLD",
    "SIGPIPE",
    "SIGSEGV",
    "SIGBUS",
    "SIGFPE",
    "SIGILL",
    "SIGSYS",
    "SIGTRAP",
)


def main() -> None:
    """Become a worker's stand-in, and never return."""
    agent = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        agent.connect(os.environ.get(SOCKET_VARIABLE, ""))
        _introduce(agent)
    except BrokenPipeError:  # it has refused already, and said why
        pass
    except OSError as error:
        sys.exit(f"this process cannot become a worker: {error}")
    agent.setblocking(False)
    _signal.set_wakeup_fd(agent.fileno(), warn_on_full_buffer=False)
    for number in _signal.valid_signals() - {getattr(_signal, name) for name in _NOT_PASSED_ON}:
        try:
            _signal.signal(number, lambda *_: None)
        except (OSError, ValueError):  # the C library keeps a few for itself
            pass
    _end_as(_hear(agent))


def _introduce(agent: _socket.socket) -> None:
    """Say who this is: the environment tells the rank."""
    _let_others_write_the_error_file()
    numbers = [int(os.environ[name]) for name in PASSED_VARIABLES if os.environ.get(name, "").isdigit()]
    parts = [len(sys.argv) - 1, *sys.argv[1:], len(numbers), *numbers]
    variables = [name + b"=" + value for name, value in os.environb.items()]
    told = b"\0".join([*(os.fsencode(str(part)) for part in parts), *variables])
    told = len(told).to_bytes(SIZE_BYTES, "big") + told
    descriptors = b"".join(number.to_bytes(4, sys.byteorder) for number in numbers)
    passed = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)] if numbers else []
    agent.sendall(told[agent.sendmsg([told], passed) :])


def _let_others_write_the_error_file() -> None:
    """The folder of `TORCHELASTIC_ERROR_FILE` is of torchrun's user alone, and the worker is another one."""
    folder, folders = os.path.dirname(os.environ.get("TORCHELASTIC_ERROR_FILE", "")), []
    while len(folder) > 1 and not os.path.basename(folder).startswith("torchelastic_"):
        folders.append(folder)
        folder = os.path.dirname(folder)
    for one in (folder, *folders) if len(folder) > 1 else ():
        if os.stat(one).st_uid == os.geteuid():
            os.chmod(one, 0o777)


def _hear(agent: _socket.socket) -> bytes:
    """What the agent says at the end; nothing where it has gone."""
    told = b""
    while not told.endswith(b"\n"):
        select.select([agent], [], [])
        try:
            piece = agent.recv(65536)
        except BlockingIOError:
            continue
        except OSError:
            return b""
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
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if int(value) != _signal.SIGKILL:
            _signal.signal(int(value), _signal.SIG_DFL)
        os.kill(os.getpid(), int(value))
    print(value or "the agent of this node has gone", file=sys.stderr, flush=True)
    os._exit(1)


if __name__ == "__main__":
    main()
