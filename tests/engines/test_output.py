"""Every byte that a rank prints is in the record, in order, however it is printed and however the rank ends."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import Result
from lab.record.read import Record

Run = Callable[..., Result]
LINES = 100_000
"""Lines of 1,000 bytes."""


def raw(result: Result, rank: int = 0) -> bytes:
    path = result.ranks[rank].log_path
    assert path is not None
    return path.read_bytes()


def numbered(path: Path | None) -> tuple[int, str]:
    """How many bytes a log has, and their hash."""
    assert path is not None
    digest = hashlib.sha256()
    with path.open("rb") as log:
        while chunk := log.read(1 << 20):
            digest.update(chunk)
    return path.stat().st_size, digest.hexdigest()


@pytest.fixture(scope="module")
def hundred_megabytes() -> tuple[int, str]:
    digest = hashlib.sha256()
    for number in range(LINES):
        digest.update(f"{number:09d} {'x' * 989}\n".encode())
    return LINES * 1000, digest.hexdigest()


@pytest.mark.parametrize("nodes", [1, pytest.param(3, marks=pytest.mark.long)])
def test_100_mb_of_every_rank_arrive_whole_and_in_order(
    run: Run, hundred_megabytes: tuple[int, str], nodes: int
) -> None:
    result = run("output.py", "lines", LINES, nodes=nodes)

    assert result.passed, result.reason
    assert [numbered(rank.log_path) for rank in result.ranks] == [hundred_megabytes] * nodes


@pytest.mark.local_first
def test_bytes_that_are_no_text_arrive_unchanged(run: Run) -> None:
    result = run("output.py", "binary", nodes=1)

    assert raw(result) == bytes(range(256)) * 64 + b"\xff\xfe\x00\r\n\x80" * 1000


def test_lines_of_1_mb_arrive_whole(run: Run) -> None:
    result = run("output.py", "long_lines", nodes=2)

    expected = b"".join(str(number).encode() * 1_000_000 + b"\n" for number in range(5))
    assert raw(result, 0) == raw(result, 1) == expected


@pytest.mark.local_first
def test_of_progress_bars_the_last_state_is_kept_once(run: Run) -> None:
    result = run("output.py", "bars", nodes=2)

    assert [rank.log for rank in result.ranks] == ["outer 2\ndone\n"] * 2


@pytest.mark.local_first
def test_a_character_written_in_two_pieces_stays_one(run: Run) -> None:
    assert run("output.py", "split_characters", nodes=1).ranks[0].log == "€\n" * 100


@pytest.mark.local_first
def test_output_that_does_not_end_in_a_newline_is_kept(run: Run) -> None:
    assert raw(run("output.py", "no_newline", nodes=1)) == b"the end has no newline"


def test_what_a_rank_printed_before_it_was_killed_in_mid_line_is_kept(run: Run) -> None:
    result = run("output.py", "killed_in_mid_line", nodes=1)

    assert result.ranks[0].signal == "SIGKILL"
    assert raw(result) == b"a whole line\nhalf a li"


def test_what_a_rank_printed_just_before_it_died_is_kept(run: Run) -> None:
    result = run("output.py", "fills_up_with", "word", nodes=1)

    assert result.ranks[0].exit_code == 5
    assert result.ranks[0].log.splitlines() == [f"word {number}" for number in range(3000)]


@pytest.mark.parametrize("cold", [False, True])
def test_standard_output_and_error_keep_their_order_and_the_record_knows_which_is_which(run: Run, cold: bool) -> None:
    result = run("output.py", "alternates", nodes=1, cold=cold)

    assert result.ranks[0].log.splitlines() == [f"line {number}" for number in range(500)]
    assert result.path is not None
    streams = {1: b"", 2: b""}
    for piece in Record(path=result.path).output():
        streams[piece.stream] += piece.data
    assert streams[1].decode().splitlines() == [f"line {number}" for number in range(0, 500, 2)]
    assert streams[2].decode().splitlines() == [f"line {number}" for number in range(1, 500, 2)]


@pytest.mark.local_first
def test_every_piece_of_the_record_has_a_time_and_they_go_forward(run: Run) -> None:
    result = run("output.py", "alternates", nodes=1)

    assert result.path is not None
    times = [piece.time for piece in Record(path=result.path).output()]
    assert times == sorted(times)
    assert times[0] > 1.7e9


@pytest.mark.local_first
@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("child_prints", "from a child" * 10 + "\nfrom the worker\n"),
        ("dev_stderr", "written to /dev/stdout\nwritten to /dev/stderr\nby a shell\n"),
        ("closes_stdout", "before\nafter\n"),
        ("closes_descriptor_1", "before\nafter\n"),
        ("replaces_stdout", "before\n"),
    ],
)
def test_unusual_ways_of_printing_work_as_in_a_terminal(run: Run, way: str, expected: str) -> None:
    result = run("output.py", way, nodes=1)

    assert result.ranks[0].log == expected
    assert result.passed, result.reason


@pytest.mark.local_first
def test_a_live_observer_is_given_the_same_bytes(run: Run) -> None:
    class Collector:
        def __init__(self) -> None:
            self.seen: dict[int, bytes] = {}

        def progress(self, text: str) -> None: ...

        def tick(self, elapsed_s: float, running: int, where: object) -> None: ...

        def terminal(self, rank: object, told: str, *, raw: bool) -> None: ...

        def output(self, rank: int, node: str, stream: int, data: bytes, when: float) -> None:
            self.seen[rank] = self.seen.get(rank, b"") + data

    collector = Collector()
    result = run("output.py", "lines", 200, nodes=3, observer=collector)

    assert collector.seen == {rank: raw(result, rank) for rank in range(3)}
