"""What a worker and its agent share: pipes for output and input, the trace, and the points at which the worker is held.

The process that starts the worker opens them: the agent that forks it, or a process of a launcher, see `launched`.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import sys
import termios
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, NoReturn

from . import trace_file
from .messages.agent import CALLED, FED, ON_REQUEST, OWN, WorkerSettings, WorkerStart
from .statement import SOCKET_VARIABLE

SPEC_VARIABLE = "LAB_WORKER_SPEC"
"""Environment variable with the specification of a worker that is a new interpreter."""
_MOST_WAITING_BYTES = 1 << 20
"""The lab sends no more than a quarter of this before the agent reports the delivery."""
_VDISABLE = b"\0"
_OUT_OF_THE_WAY = 100
"""Lowest descriptor for the lab: scripts use lower ones."""
_STREAMS = ("in", "out", "err")


class InputChannel:
    """Passes input on to a worker as fast as the worker reads it.

    Args:
        ends: the agent's descriptors of the worker by name. This closes `input`, to which the input is written, but not
            `terminal`, the agent's end of a pseudo-terminal, which its reader closes.
    """

    def __init__(self, ends: Mapping[str, int]) -> None:
        self._input = ends.get("input", -1)
        self._terminal = ends.get("terminal", -1)
        self._data = b""
        self._last = False

    @property
    def waiting(self) -> int | None:
        """The descriptor that has to become writable for the queued input; None: nothing is queued."""
        return self._input if self._data else None

    def write(self, data: bytes, *, last: bool) -> tuple[int, bool]:
        """Queue input for the worker, and call `flush`."""
        self._data += data[: _MOST_WAITING_BYTES - len(self._data)]
        self._last |= last
        return self.flush()

    def flush(self) -> tuple[int, bool]:
        """Write what the worker accepts now; return the number of bytes, and whether the input is closed."""
        accepted = 0
        try:
            while self._data and self._input >= 0:
                done = os.write(self._input, self._data)
                self._data, accepted = self._data[done:], accepted + done
        except BlockingIOError:
            return accepted, False
        except OSError:  # the worker has closed it
            self._last = True
        if self._last or self._input < 0:
            self.close()
        return accepted, self._input < 0

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the worker's terminal."""
        if self._terminal >= 0:
            size = (min(max(1, one), 0xFFFF) for one in (rows, columns))
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))

    def close(self) -> None:
        """Close its descriptor."""
        if self._input >= 0:
            os.close(self._input)
        self._input, self._data = -1, b""


def add_triggers(start: WorkerStart, triggers: Iterable[dict[str, Any]]) -> WorkerStart:
    """Return a worker with the triggers of the run that apply to its rank, or to any rank."""
    own = tuple(one for one in triggers if start.rank >= 0 and one.get("rank") in (None, start.rank))
    return start._replace(triggers=own) if own else start


def open_channels(start: WorkerStart, settings: WorkerSettings) -> tuple[dict[str, int], dict[str, int]]:
    """Open what a worker and its agent share; return the agent's descriptors, and the worker's, by name.

    Raises:
        OSError: no pseudo-terminal is available for a worker that needs one from its start.
    """
    mine: dict[str, int] = {}
    theirs: dict[str, int] = {}
    read = {"out": "out", "err": "err"}
    written = {"gate": "gate"}
    """The pipes: what the agent calls each that it reads or writes, and what the worker calls it."""
    if settings.step:
        written["step"] = "step"
    if start.triggers:
        written["hold"] = "hold"
    if start.stdin == FED:
        written["input"] = "in"
    if start.stdin == CALLED:
        written["input"], read["answered"] = "calls", "answers"
    if start.stdin in (ON_REQUEST, OWN) and _open_terminal(start.stdin, mine, theirs) and start.stdin == ON_REQUEST:
        written["grant"] = "granted"
    for name, other in read.items():
        mine[name], theirs[other] = os.pipe2(os.O_CLOEXEC)
    for name, other in written.items():
        theirs[other], mine[name] = os.pipe2(os.O_CLOEXEC)
    for name in ("stack", *(["trace"] if settings.trace and start.rank >= 0 else ())):
        mine[name] = trace_file.make_trace_file()
        theirs[name] = os.dup(mine[name])
    if sidecar_of(start):
        mine["sidecar"], theirs["sidecar"] = (one.detach() for one in socket.socketpair())
    return mine, theirs


def _open_terminal(kind: str, mine: dict[str, int], theirs: dict[str, int]) -> bool:
    """Open a pseudo-terminal if one is available.

    A worker that may only ask for one reports the lack at its breakpoints.
    """
    try:
        mine["terminal"], theirs["terminal"] = os.openpty()
    except OSError:
        if kind == OWN:
            raise
        return False
    mine["input"] = os.dup(mine["terminal"])
    settings = termios.tcgetattr(theirs["terminal"])
    settings[6][termios.VSUSP] = _VDISABLE  # nothing could continue the rank after Ctrl-Z
    termios.tcsetattr(theirs["terminal"], termios.TCSANOW, settings)
    return True


def sidecar_of(start: WorkerStart) -> str:
    """Return the process next to a worker, as FEATURE.MODULE; empty: none."""
    return next((one["sidecar"] for one in start.triggers if one.get("sidecar")), "")


def sidecar_module(start: WorkerStart) -> Any:
    """Return the module of a feature that the process next to a worker runs.

    It has `start_serving(uid, gid, channel)` for the agent, which returns a pid and the descriptor for commands to the
    process, and `install_filter(channel)` for the worker.
    """
    feature, _, module = sidecar_of(start).partition(".")
    return import_module(f"..features.{feature}.on_node.{module}", __package__)


def relocate_descriptors(start: WorkerStart, worker: dict[str, int]) -> tuple[tuple[int, ...], dict[str, int]]:
    """Return the streams of a worker, -1 if missing, and its other descriptors, far from those of scripts."""
    streams = (worker["terminal"],) * 3 if start.stdin == OWN else tuple(worker.get(name, -1) for name in _STREAMS)
    others = {name: fd for name, fd in worker.items() if name not in _STREAMS}
    return streams, {name: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY) for name, fd in others.items()}


def await_gate(start: WorkerStart, settings: WorkerSettings, descriptors: Mapping[str, int]) -> dict[str, Any] | None:
    """Wait in a worker until its gate opens, and install its sidecar.

    Returns:
        The specification for `rank.worker`, with descriptors as NAME_fd; None: the agent gave the worker up.
    """
    gate, sidecar = descriptors["gate"], descriptors.get("sidecar")
    wanted = os.read(gate, 1)
    os.close(gate)
    if not wanted:
        return None
    if sidecar is not None:
        sidecar_module(start).install_filter(socket.socket(fileno=sidecar))
    spec = {**settings._asdict(), **start._replace(env={})._asdict(), "note_socket": os.environ[SOCKET_VARIABLE]}
    spec["script"] = os.path.join(settings.import_root if start.stdin == CALLED else "", start.script or start.argv[0])
    return spec | {f"{name}_fd": fd for name, fd in descriptors.items() if name not in ("gate", "sidecar")}


def become_cold_worker(spec: dict[str, Any], import_root: str) -> NoReturn:
    """Replace this process by a new interpreter that runs a worker."""
    for name, fd in spec.items():
        if name.endswith("_fd"):
            os.set_inheritable(fd, True)
    os.environ[SPEC_VARIABLE] = json.dumps(spec)
    code = f"import sys; sys.path.append({import_root!r}); from labnode.node.rank import worker; worker.start_cold()"
    os.execv(sys.executable, [sys.executable, "-u", "-c", code])
