"""What ranks printed, line by line in the order of time; of long logs the beginning and the end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lab.record.layout import INDEX, LOGS, rank_log
from lab.record.output import IndexEntry, IndexReader
from lab.record.read import Record
from lab.record.record_files import MOST_LINES_BYTES, open_file
from lab.report.harmless import plain
from lab.words import format_bytes

MOST_LINES = 6000
"""Of all ranks together."""
_MOST_BYTES_OF_A_RANK = 512 * 1024
_LONGEST_LINE = 2000
_MOST_SENTENCES = 3
_HEAD_SHARE = 0.25
"""How much of what is kept of a long log is its beginning; the end says more."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that a rank printed."""

    rank: int
    """-1: the scenario's own check."""
    stream: int
    """1: standard output, 2: standard error, 3: its terminal; 0: not printed, but says what was left out."""
    time: float
    """Unix time."""
    text: str


def log_lines(record: Record) -> tuple[list[LogLine], list[str]]:
    """The lines of all ranks by time, and sentences about ranks of whose logs something was left out."""
    pieces: dict[int, list[tuple[int, int, int, float]]] = {}
    for rank, stream, offset, length, when in _index(record):
        pieces.setdefault(rank, []).append((stream, offset, length, when))
    most = max(20, MOST_LINES // max(1, len(pieces)))
    lines: list[LogLine] = []
    left_out = []
    for rank, own in sorted(pieces.items()):
        kept, sentence = _kept_lines(record, rank, own, most)
        lines.extend(kept)
        if sentence:
            left_out.append(sentence)
    if len(left_out) > _MOST_SENTENCES:
        left_out = [
            f"Of what {len(left_out)} ranks printed, only the beginning and the end are here; the whole is in {LOGS}/"
        ]
    return sorted(lines, key=lambda line: line.time), left_out


def _index(record: Record) -> Iterator[IndexEntry]:
    try:
        file = open_file(record.path, INDEX, MOST_LINES_BYTES)
    except OSError:
        return
    with file:
        yield from IndexReader().read(file)


def _kept_lines(
    record: Record, rank: int, pieces: list[tuple[int, int, int, float]], most: int
) -> tuple[list[LogLine], str]:
    total = sum(length for _, _, length, _ in pieces)
    of_head = int(most * _HEAD_SHARE)
    if total <= _MOST_BYTES_OF_A_RANK:
        lines = list(_assembled(record, rank, pieces))
        if len(lines) <= most:
            return lines, ""
    else:
        head_bytes = int(_MOST_BYTES_OF_A_RANK * _HEAD_SHARE)
        tail_from = total - (_MOST_BYTES_OF_A_RANK - head_bytes)
        lines = list(_assembled(record, rank, [p for p in pieces if p[1] + p[2] <= head_bytes]))
        lines += _assembled(record, rank, [p for p in pieces if p[1] >= tail_from])
    head, tail = lines[:of_head], lines[of_head:][of_head - most :]
    between = tail[0].time if tail else head[-1].time if head else pieces[0][3]
    who = f"rank {rank}" if rank >= 0 else "the check"
    whole = f"{LOGS}/{rank_log(rank)}"
    sentence = (
        f"Of what {who} printed ({format_bytes(total)}) only the beginning and the end are here; "
        f"the whole is in {whole}"
    )
    gap = LogLine(rank, 0, between, f"… left out here; the whole log is {whole} in the record …")
    return [*head, gap, *tail], sentence


def _assembled(record: Record, rank: int, pieces: list[tuple[int, int, int, float]]) -> Iterator[LogLine]:
    """Whole lines from pieces; a line's time is that of its first piece."""
    held: dict[int, tuple[float, bytearray]] = {}
    try:
        file = open_file(record.path, f"{LOGS}/{rank_log(rank)}")
    except OSError:
        return
    with file:
        for stream, offset, length, when in pieces:
            file.seek(offset)
            data = file.read(min(length, _MOST_BYTES_OF_A_RANK))
            began, line = held.pop(stream, (when, bytearray()))
            first, *others = data.split(b"\n")
            line += first
            for other in others:
                yield LogLine(rank, stream, began, clean_line(line))
                began, line = when, bytearray(other)
            if line:
                held[stream] = began, line
    for stream, (when, rest) in sorted(held.items()):
        yield LogLine(rank, stream, when, clean_line(rest))


def clean_line(line: bytes | bytearray) -> str:
    """Text without escape sequences; of a line that a carriage return wrote over, the last state."""
    text = line.decode("utf-8", "backslashreplace").rstrip("\r").rpartition("\r")[2]
    text = plain(_ESCAPES.sub("", text))
    return text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}… ({len(text)} characters)"
