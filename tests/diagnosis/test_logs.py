"""Patterns are found in logs of any size, wherever the pieces end in which a log is read."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from lab.diagnosis import expectations as patterns
from lab.diagnosis.expectations import find_in_log


def test_a_log_is_searched_line_by_line(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("starting\r\nreceived 30\nfertig: é\n", encoding="utf-8")
    assert find_in_log(log, r"^starting$") == "starting"
    assert find_in_log(log, "fertig: .$") == "fertig: é"
    assert find_in_log(log, r"\Areceived") is None
    assert find_in_log(log, r"starting\nreceived") == "starting\nreceived"


def test_a_binary_log_is_searched_too(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_bytes(bytes(range(256)) * 10 + b"\nready\n")
    assert find_in_log(log, "^ready$") == "ready"


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads logs in pieces of 10 characters, so that short ones have many borders."""
    monkeypatch.setattr(patterns, "LOG_CHUNK", 10)
    monkeypatch.setattr(patterns, "LONGEST_MATCH", 40)
    monkeypatch.setattr(patterns, "_LOOK_AHEAD", 5)


@pytest.mark.parametrize(
    ("line", "pattern", "match"),
    [
        ("received 30", r"^received \d+$", "received 30"),
        ("received 3000", r"received \d+", "received 3000"),
        ("a\nb\nc", r"^a\nb\nc$", "a\nb\nc"),
        ("receiving", r"\bcei", None),
        ("xreceived", r"^received", None),
        ("received x", r"received$", None),
        ("received x", r"\Areceived", None),
        ("received x", r"received\Z", None),
        ("foo bar", r"foo(?! bar)", None),
        ("foo bar", r"(?<=foo )bar", "bar"),
        ("é" * 9, "^é{9}$", "é" * 9),
    ],
)
def test_a_match_does_not_depend_on_where_the_pieces_end(
    small_pieces: None, tmp_path: Path, line: str, pattern: str, match: str | None
) -> None:
    log = tmp_path / "rank0.log"
    for before in range(25):
        log.write_text("." * before + "\n" + line + "\n" + "-" * 50 + "\n", encoding="utf-8")
        assert find_in_log(log, pattern) == match, before


def test_a_match_at_the_end_of_the_log_is_found(small_pieces: None, tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("." * 95 + "\nthe end")
    assert find_in_log(log, r"the end\Z") == "the end"
    assert find_in_log(log, r"end$") == "end"


def test_an_endless_match_ends_the_search(small_pieces: None, tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("start" + "x" * 10_000)
    match = find_in_log(log, r"start[\s\S]*")
    assert match is not None
    assert 40 < len(match) < 100


def test_a_large_log_is_searched_in_little_memory(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    with log.open("w") as file:
        for _ in range(24):
            file.write(("x" * 1023 + "\n") * 1024)
        file.write("ready\n")
    tracemalloc.start()
    try:
        assert find_in_log(log, "^ready$") == "ready"
        assert tracemalloc.get_traced_memory()[1] < 12 * 1024 * 1024
    finally:
        tracemalloc.stop()
