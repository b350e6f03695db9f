"""An agent passes on whole lines of what a recorder writes, all of them, and no more than the limit."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
from collections.abc import Iterator

import pytest

from lab.node.trace_file import TraceFile, bound_held
from tests.golden import golden

F_ADD_SEALS, F_SEAL_GROW = 1033, 4


@pytest.fixture
def file() -> Iterator[TraceFile]:
    trace = TraceFile(limit_bytes=1 << 20)
    yield trace
    trace.close()


def write(file: TraceFile, data: bytes) -> None:
    assert os.write(file.fd, data) == len(data)


def copy(file: TraceFile, data: bytes, at: int) -> None:
    """Write as a recorder does that has the file mapped."""
    with mmap.mmap(file.fd, 0) as pages:
        pages[at : at + len(data)] = data


def test_what_was_written_is_passed_on_once(file: TraceFile) -> None:
    write(file, b"one\ntwo\n")
    assert list(file.chunks()) == [b"one\ntwo\n"]
    assert list(file.chunks()) == []
    write(file, b"three\n")
    assert list(file.chunks()) == [b"three\n"]


def test_half_a_line_waits_for_its_end(file: TraceFile) -> None:
    write(file, b"one\ntw")
    assert list(file.chunks()) == [b"one\n"]
    assert list(file.chunks()) == []
    write(file, b"o\n")
    assert list(file.chunks()) == [b"two\n"]


def test_half_a_line_is_passed_on_when_nobody_is_left_to_write_its_end(file: TraceFile) -> None:
    write(file, b"one\ntw")
    assert list(file.chunks(ended=True)) == [b"one\n", b"tw"]
    assert list(file.chunks(ended=True)) == []


def test_room_that_a_recorder_has_in_front_of_it_is_not_passed_on(file: TraceFile) -> None:
    write(file, b"one\ntw" + bytes(500_000))
    assert list(file.chunks()) == [b"one\n"]
    assert list(file.chunks()) == []
    copy(file, b"o\nthree\n", at=6)
    assert list(file.chunks()) == [b"two\nthree\n"]
    assert list(file.chunks(ended=True)) == []


def test_a_line_is_passed_on_once_all_of_it_is_there(file: TraceFile) -> None:
    write(file, b"one\nt\0o\n" + bytes(100))
    assert list(file.chunks()) == [b"one\n"]
    copy(file, b"w", at=5)
    assert list(file.chunks()) == [b"two\n"]


def test_a_line_whose_writer_was_killed_is_passed_on_without_the_room_in_it(file: TraceFile) -> None:
    write(file, b"one\nt\0o" + bytes(400_000))
    assert b"".join(file.chunks(ended=True)) == b"one\nto"
    assert list(file.chunks(ended=True)) == []


def test_much_is_passed_on_in_pieces_of_whole_lines(file: TraceFile) -> None:
    lines = b"".join(b"%06d\n" % number for number in range(100_000))
    write(file, lines)
    pieces = list(file.chunks())
    assert b"".join(pieces) == lines
    assert len(pieces) > 1
    assert all(piece.endswith(b"\n") and len(piece) <= 1 << 18 for piece in pieces)


def test_a_line_that_is_longer_than_a_piece_is_passed_on_whole(file: TraceFile) -> None:
    long = b"x" * 700_000 + b"\n"
    write(file, long + b"short\n")
    assert b"".join(file.chunks()) == long + b"short\n"


def test_a_trace_that_grows_too_large_ends_with_the_reason_and_fills_no_memory(file: TraceFile) -> None:
    lines = b"".join(b"%06d\n" % number for number in range(200_000))
    write(file, lines)
    *pieces, last = file.chunks()
    assert lines.startswith(b"".join(pieces))
    assert (1 << 19) < sum(map(len, pieces)) <= 1 << 20
    cut = json.loads(last)
    assert (cut["k"], cut["why"]) == ("cut", golden(1))

    assert file.exceeded == ("trace", 1 << 20)
    write(file, lines)
    assert list(file.chunks()) == []
    assert file.held_bytes == 0


def test_of_traces_that_nobody_takes_the_largest_is_cut_and_the_others_stay(file: TraceFile) -> None:
    other = TraceFile()
    write(file, b"x" * 700_000)
    write(other, b"one\n")

    bound_held([file, other], limit_bytes=1 << 20)
    assert file.exceeded is None
    write(file, b"x" * 700_000)
    bound_held([file, other], limit_bytes=1 << 20)

    assert file.exceeded == (golden(1), 1 << 20)
    assert file.held_bytes == 0
    assert [json.loads(line)["k"] for line in file.chunks()] == ["cut"]
    assert list(file.chunks()) == []
    assert list(other.chunks()) == [b"one\n"]
    other.close()


def test_a_file_made_large_with_nothing_in_it_takes_neither_memory_nor_time() -> None:
    trace = TraceFile(limit_bytes=1 << 20)
    os.ftruncate(trace.fd, 1 << 40)
    write(trace, b"after it\n")

    assert list(trace.chunks()) == []
    *_, last = trace.chunks(ended=True)

    assert json.loads(last)["k"] == "cut"
    assert trace.held_bytes == 0
    trace.close()


def test_a_line_without_an_end_is_not_read_into_the_memory_of_the_agent() -> None:
    trace = TraceFile()
    for _ in range(60):
        write(trace, b"x" * (1 << 20))

    assert [json.loads(line)["why"] for line in trace.chunks()] == [golden(1)]
    assert trace.held_bytes == 0
    trace.close()


def test_a_script_can_make_the_file_no_shorter_and_forbid_nothing_to_its_recorder(file: TraceFile) -> None:
    write(file, b"one\n")
    for kept_from in (lambda: os.ftruncate(file.fd, 0), lambda: fcntl.fcntl(file.fd, F_ADD_SEALS, F_SEAL_GROW)):
        with pytest.raises(PermissionError):
            kept_from()
    write(file, b"two\n")
    assert list(file.chunks()) == [b"one\ntwo\n"]


def test_what_was_passed_on_takes_no_memory(file: TraceFile) -> None:
    write(file, b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 5000 + b"half")
    before = os.fstat(file.fd)
    assert before.st_blocks * 512 >= 500_104
    assert sum(map(len, file.chunks())) == 500_100
    after = os.fstat(file.fd)
    assert after.st_size == before.st_size
    assert after.st_blocks * 512 <= mmap.PAGESIZE
    write(file, b" a line\n")
    assert list(file.chunks()) == [b"half a line\n"]
