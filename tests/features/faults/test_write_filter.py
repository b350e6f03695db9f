"""What becomes of writes that are seen: done, refused, or done later."""

from __future__ import annotations

import errno
import os
import struct
import tempfile
from types import SimpleNamespace
from typing import Any

import pytest

from lab.features.faults.on_node import write_filter
from lab.features.faults.on_node.write_filter import Server, is_on_disk

WRITE, COPY, FSYNC = 1, 326, 74
DONE, FULL = (0, 1), (-errno.ENOSPC, 0)


@pytest.fixture
def answers() -> list[tuple[int, int, int]]:
    """Identity, error and flags of all that was answered."""
    return []


@pytest.fixture
def server(answers: list[tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch) -> Server:
    """For x86-64, where descriptor 7 is the only file on a disk."""

    def send(answer: bytes) -> None:
        identity, _, error, flags = struct.unpack("QqiI", answer)
        answers.append((identity, error, flags))

    monkeypatch.setattr(write_filter, "is_on_disk", lambda _, fd: fd == 7)
    return Server(write_filter._CALLS["x86_64"], send)


def notice(identity: int, number: int, *arguments: int) -> bytes:
    return struct.pack("QIIiIQ6Q", identity, 4242, 0, number, 0xC000003E, 0, *arguments, *[0] * (6 - len(arguments)))


def test_a_write_is_done_while_nothing_is_broken(server: Server, answers: list[Any]) -> None:
    server.handle(notice(1, WRITE, 7))
    assert answers == [(1, *DONE)]


def test_a_full_disk_refuses_files_only_and_what_takes_room_only(server: Server, answers: list[Any]) -> None:
    server.apply({"full": True})
    for identity, (number, *arguments) in enumerate(
        [(WRITE, 7), (WRITE, 1), (COPY, 1, 0, 7), (COPY, 7, 0, 1), (FSYNC, 7)]
    ):
        server.handle(notice(identity, number, *arguments))
    server.apply({})
    server.handle(notice(9, WRITE, 7))
    assert answers == [(0, *FULL), (1, *DONE), (2, *FULL), (3, *DONE), (4, *DONE), (9, *DONE)]


def test_a_slow_disk_has_writes_wait_until_it_is_slow_no_more(server: Server, answers: list[Any]) -> None:
    server.apply({"delay_s": 500.0})
    for identity, number in ((1, WRITE), (2, FSYNC)):
        server.handle(notice(identity, number, 7))
    server.handle(notice(3, WRITE, 2))
    server.release_due()
    assert answers == [(3, *DONE)]
    assert 400 < server.patience_s() <= 500
    server.apply({})
    server.release_due()
    assert answers[1:] == [(1, *DONE), (2, *DONE)]


def test_files_on_a_disk_are_told_from_pipes_and_memory(tmp_path: Any, pipe: tuple[int, int]) -> None:
    memory = os.memfd_create("trace")
    with (tmp_path / "file").open("w") as file:
        assert is_on_disk(os.getpid(), file.fileno())
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as shared:
        assert not any(is_on_disk(os.getpid(), fd) for fd in (memory, shared.fileno(), pipe[1], 9999))
    os.close(memory)


@pytest.mark.parametrize(
    ("workers", "why"), [(None, "no run uses the node"), ([], "only in a run whose scenario has a disk fault")]
)
def test_a_disk_that_cannot_be_broken_is_a_sentence(workers: list[Any] | None, why: str) -> None:
    run = None if workers is None else SimpleNamespace(disk={}, workers=workers)
    context: Any = SimpleNamespace(run=run)
    with pytest.raises(ValueError, match=why):
        write_filter.apply_disk(context, {"full": True})
