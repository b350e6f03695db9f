"""What an agent takes from processes that a script started, which may send whatever they like."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.node.joined_processes import JoinedProcesses
from lab.node.limits import Limits
from lab.node.messages import wire
from lab.node.messages.agent import (
    MOST_OF_A_WORKER,
    Claim,
    Config,
    Exited,
    Joined,
    Joining,
    Leaving,
    Limited,
    Message,
    Note,
    Raised,
    Trace,
    is_joined,
    nth_of,
    number_of,
    worker_of,
)
from lab.node.messages.wire import Sender
from lab.node.rank.note import send_statement
from lab.node.statement import bind_notes, receive_statements
from lab.node.users import Users

Send = Callable[..., None]
WORKER = 2


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "notes")


@pytest.fixture
def notes(path: str) -> Iterator[socket.socket]:
    with bind_notes(path) as bound:
        yield bound


@pytest.fixture
def told() -> list[Message]:
    return []


class Client:
    """Who the run is of, as far as a sender knows it."""

    congested = False

    def __init__(self, told: list[Message]) -> None:
        self.send = told.append


def limits_of(send: Sender) -> Limits:
    claim, config = Claim("run", "me", 60.0), Config("node1", "", container=False, import_root="")
    return Limits(claim, config, send, Users(claim, container=False), ())


@pytest.fixture
def joiners(told: list[Message]) -> Iterator[JoinedProcesses]:
    send = Sender("run", "node1", Client(told))  # type: ignore[arg-type]
    joiners = JoinedProcesses(send, limits_of(send).count)
    yield joiners
    joiners.end()


def open_descriptors() -> int:
    gc.collect()  # what other tests left would go later
    return len(os.listdir("/proc/self/fd"))


def join(path: str, rank: int = 1, world_size: int = 2, fds: list[int] | None = None) -> None:
    """As a process does, with files of its own unless others are given."""
    files = [os.memfd_create("trace"), os.memfd_create("stack")] if fds is None else fds
    if fds is None:
        os.write(files[0], b'{"k":"start"}\n')
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect(path)
        socket.send_fds(
            channel, [wire.encode_message(Joining(rank, time.time(), world_size=world_size, meeting="29500"))], files
        )
    for fd in files:
        os.close(fd)


def take(joiners: JoinedProcesses, notes: socket.socket) -> list[bool]:
    return [joiners.handle(WORKER, letter) for letter in receive_statements(notes)]


def test_a_number_says_whose_process_it_is_and_which() -> None:
    for worker, nth in ((0, 0), (0, MOST_OF_A_WORKER - 1), (7, 3)):
        number = number_of(worker, nth)
        assert (worker_of(number), nth_of(number), is_joined(number)) == (worker, nth, True)
    assert not any(map(is_joined, (-2, -1, 0, 5)))


def test_a_process_that_joins_is_read_to_its_end(
    joiners: JoinedProcesses, notes: socket.socket, path: str, told: list[Message]
) -> None:
    join(path)
    send_statement(path, Note(rank=0, time=1.0, name="loss", value=2))
    send_statement(path, Raised(1, time.time() + 1e6, error="ValueError: no", traceback="the traceback"))
    send_statement(path, Leaving(1, 1.0, code=3))

    assert take(joiners, notes) == [True] * 4
    joiners.end()

    number = number_of(WORKER, 0)
    joined, note, trace, exited = told
    assert isinstance(joined, Joined)
    assert (joined.rank, joined.claimed_rank, joined.world_size, joined.pid) == (number, 1, 2, os.getpid())
    assert isinstance(note, Note)
    assert (note.rank, note.name, note.node) == (number, "loss", "node1")
    assert trace == Trace("run", number, b'{"k":"start"}\n')
    assert isinstance(exited, Exited)
    assert (exited.rank, exited.code, exited.error) == (number, 3, "ValueError: no")
    assert exited.raised is not None
    assert exited.raised <= time.time()


def test_what_is_no_file_in_memory_or_no_rank_is_refused_and_closed(
    joiners: JoinedProcesses, notes: socket.socket, path: str, told: list[Message]
) -> None:
    before = open_descriptors()
    pipe, plain = os.pipe(), [os.open("/dev/zero", os.O_RDWR) for _ in range(2)]
    join(path, fds=[*pipe])
    join(path, fds=plain)
    join(path, fds=[os.memfd_create("alone")])
    join(path, fds=[os.memfd_create(str(n)) for n in range(20)])
    for rank, world_size in ((2, 2), (-1, 2), (0, 0), (5, 1 << 30)):
        join(path, rank, world_size)

    assert take(joiners, notes) == [True] * 7  # what has more descriptors than any is not even read
    assert told == []
    assert open_descriptors() == before


def test_a_process_joins_once(joiners: JoinedProcesses, notes: socket.socket, path: str, told: list[Message]) -> None:
    join(path)
    take(joiners, notes)
    held = open_descriptors()
    join(path, rank=0)

    assert take(joiners, notes) == [True]
    assert len(told) == 1
    assert open_descriptors() == held


def test_what_others_say_is_left_to_whoever_knows_them(
    joiners: JoinedProcesses, notes: socket.socket, path: str
) -> None:
    send_statement(path, Note(rank=WORKER, time=1.0, name="loss", value=2))
    send_statement(path, Leaving(1, 1.0, code=3))

    assert take(joiners, notes) == [False, True]


def test_an_end_that_nobody_told_of_is_seen(notes: socket.socket, path: str) -> None:
    told: list[Message] = []
    send = Sender("run", "node1", Client(told))  # type: ignore[arg-type]
    joiners = JoinedProcesses(send, limits_of(send).count)
    code = "import sys; from tests.node.test_joined_processes import join; join(sys.argv[1]); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not told and time.monotonic() < deadline:
            take(joiners, notes)
        process.kill()
        pidfds = {one.pidfd for one in joiners}
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert joiners.detect_ends(pidfds)
        joiners.report_ends()
        assert process.wait() == -signal.SIGKILL, "its end is left to whoever waits for it, as for a worker"
    joiners.end()

    exited = told[-1]
    assert isinstance(exited, Exited)
    assert (exited.signal, exited.code) == ("SIGKILL", None)


def test_all_that_a_worker_starts_have_as_much_together_as_a_worker(
    notes: socket.socket, path: str, told: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    send_message = Sender("run", "node1", Client(told))  # type: ignore[arg-type]
    limits = limits_of(send_message)
    monkeypatch.setattr(limits, "_most_bytes", {"notes": 300, "trace": 20})
    joiners = JoinedProcesses(send_message, limits.count)

    def note() -> None:
        join(path)
        send_statement(path, Note(rank=1, time=1.0, name="n", value="x" * 150))

    for _ in range(3):
        child = os.fork()
        if not child:
            note()
            os._exit(0)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        take(joiners, notes)
        os.waitpid(child, 0)
    for process in joiners:
        joiners.send_trace(process)
    joiners.end()

    assert [one.rank for one in told if isinstance(one, Note)] == [number_of(WORKER, 0)]
    whole, *cut = [one for one in told if isinstance(one, Trace)]
    assert whole.data == b'{"k":"start"}\n'
    assert [b'"k":"cut"' in one.data for one in cut] == [True, True]
    limits.report_worker(SimpleNamespace(rank=WORKER, attempt="", trace=None))  # type: ignore[arg-type]
    reached = [one for one in told if isinstance(one, Limited)]
    assert [(one.rank, one.what) for one in reached] == [(WORKER, "notes"), (WORKER, "trace")]
