"""The texts of a page: sources with colours, what ranks printed, and the files that a run made."""

from __future__ import annotations

import base64
import re
from codecs import getincrementaldecoder
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers.data import YamlLexer
from pygments.lexers.python import PythonLexer

from lab.errors import RecordError
from lab.features.records.records import scripts_of
from lab.record.layout import INDEX, LOGS, OUTPUTS, SCENARIO, rank_log
from lab.record.read import IndexEntry, IndexReader, LineJoiner, Piece, Record
from lab.record.record_files import MOST_LINES_BYTES, open_file, read_beginning
from lab.record.result import Output, Result
from lab.report.sanitize import sanitize_plain
from lab.words import clip_middle, format_bytes, name_ranks

_LONGEST = 400_000
_MOST_TOGETHER = 1_000_000
"""Characters of all sources, and of each: to color them takes a second each million."""
_MOST_SCRIPTS = 100
_LONGEST_LINE = 20_000
"""A source with a longer line has no colors."""
_CITATION = re.compile(r"([\w./-]+\.py):(\d+)|File \"([^\"]+\.py)\", line (\d+)")


class Source(NamedTuple):
    """A text with the markup of each of its lines."""

    name: str
    anchor: str
    """Line N has the id `<anchor>-N`."""
    lines: list[Markup]
    cut: bool
    """Whether the text was too long to be shown whole."""


def sources(record: Record) -> list[Source]:
    """The script, or scripts, that the record holds, then the scenario."""
    script = Path(record.plan().script).name
    names = sorted(scripts_of(record), key=lambda name: name != script)[:_MOST_SCRIPTS]
    texts = [(name, f"L{number}", _read(record, name)) for number, name in enumerate(names)]
    texts.append((SCENARIO, "Y", record.scenario_text() or ""))
    known, room = [], _MOST_TOGETHER
    for name, anchor, text in texts if texts[-1][-1] else texts[:-1]:
        shown = text[: min(_LONGEST, room)]
        known.append(Source(name, anchor, _coloured(name, shown), len(text) > len(shown)))
        room -= len(shown)
    return known


def cite(text: str, known: list[Source]) -> Markup:
    """The text with a link at every `file.py:12` of a source that the page shows."""
    anchors = {source.name: source.anchor for source in known}
    parts, at = Markup(), 0
    for match in _CITATION.finditer(text):
        if anchor := anchors.get(Path(match[1] or match[3]).name):
            link = Markup('<a href="#{}-{}">{}</a>').format(anchor, match[2] or match[4], match[0])
            parts += escape(text[at : match.start()]) + link
            at = match.end()
    return parts + escape(text[at:])


def _read(record: Record, name: str) -> str:
    try:
        return read_beginning(record.path, name)
    except OSError:
        return ""


def _coloured(name: str, text: str) -> list[Markup]:
    if "\0" in text or max(map(len, text.split("\n"))) > _LONGEST_LINE:  # each token takes its time
        return [escape(line) for line in text.rstrip("\n").split("\n")]
    lexer = YamlLexer(stripnl=False) if name.endswith(".yaml") else PythonLexer(stripnl=False)
    return [Markup(line) for line in highlight(text, lexer, HtmlFormatter(nowrap=True)).rstrip("\n").split("\n")]


MOST_LINES = 6000
"""Of all ranks together."""
_MOST_BYTES_OF_A_RANK = 512 * 1024
_LONGEST_LOG_LINE = 2000
_MOST_SENTENCES = 3
_HEAD_SHARE = 0.25
"""How much of what is kept of a long log is its beginning; the end says more."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


class LogLine(NamedTuple):
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
    entries: dict[int, list[IndexEntry]] = defaultdict(list)
    with suppress(OSError), open_file(record.path, INDEX, MOST_LINES_BYTES) as file:
        for entry in IndexReader().read(file):
            entries[entry.rank].append(entry)
    most = max(20, MOST_LINES // max(1, len(entries)))
    kept = [_kept_lines(record, rank, own, most) for rank, own in sorted(entries.items())]
    left_out = [sentence for _, sentence in kept if sentence]
    if len(left_out) > _MOST_SENTENCES:
        left_out = [
            f"Of what {len(left_out)} ranks printed, only the beginning and the end are here; the whole is in {LOGS}/"
        ]
    return sorted((line for lines, _ in kept for line in lines), key=lambda line: line.time), left_out


def _kept_lines(record: Record, rank: int, entries: list[IndexEntry], most: int) -> tuple[list[LogLine], str]:
    total, head_bytes = sum(entry.length for entry in entries), int(_MOST_BYTES_OF_A_RANK * _HEAD_SHARE)
    if total <= _MOST_BYTES_OF_A_RANK:
        lines = list(_assembled(record, rank, entries))
        if len(lines) <= most:
            return lines, ""
    else:
        tail_from = total - (_MOST_BYTES_OF_A_RANK - head_bytes)
        lines = list(_assembled(record, rank, [e for e in entries if e.offset + e.length <= head_bytes]))
        lines += _assembled(record, rank, [e for e in entries if e.offset >= tail_from])
    of_head = int(most * _HEAD_SHARE)
    head, tail = lines[:of_head], lines[of_head:][of_head - most :]
    between = tail[0].time if tail else head[-1].time if head else entries[0].time
    who, whole = f"rank {rank}" if rank >= 0 else "the check", f"{LOGS}/{rank_log(rank)}"
    gap = LogLine(rank, 0, between, f"… left out here; the whole log is {whole} in the record …")
    left_out = f"Of what {who} printed ({format_bytes(total)}) only the beginning and the end are here"
    return [*head, gap, *tail], f"{left_out}; the whole is in {whole}"


def _assembled(record: Record, rank: int, entries: list[IndexEntry]) -> Iterator[LogLine]:
    """Whole lines from pieces."""
    joiner = LineJoiner()
    with suppress(OSError), open_file(record.path, f"{LOGS}/{rank_log(rank)}") as file:
        for _, stream, offset, length, when in entries:
            file.seek(offset)
            for line in joiner.join(Piece(rank, stream, when, file.read(min(length, _MOST_BYTES_OF_A_RANK)))):
                yield LogLine(*line[:3], clean_line(line.data))
    for line in joiner.rest():
        yield LogLine(*line[:3], clean_line(line.data))


def clean_line(line: bytes) -> str:
    """Text without escape sequences; of a line that a carriage return wrote over, the last state."""
    text = line.decode("utf-8", "backslashreplace").rstrip("\r").rpartition("\r")[2]
    text = sanitize_plain(_ESCAPES.sub("", text))
    return text if len(text) <= _LONGEST_LOG_LINE else f"{text[:_LONGEST_LOG_LINE]}… ({len(text)} characters)"


MOST_FILES = 200
"""That are named."""
_MOST_EMBEDDED = 8 * 1000**2
"""Bytes of all that are shown."""
_LARGEST_PICTURE = 2 * 1000**2
_LARGEST_DRAWING = 500 * 1000
"""Of an SVG, which is computed, not only decoded."""
_LARGEST_TEXT = 32 * 1000
"""Of a longer one, its beginning."""
_MOST_LINES = 400
_MOST_PIXELS = 50_000_000
_LONGEST_NAME = 200
_FULL = "the page holds as much as it may"
_SIGNS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


class ShownFile(NamedTuple):
    """A file as the page shows it."""

    path: str
    """In the record."""
    size: str
    ranks: str
    """Who made it."""
    picture: str = ""
    """A `data:` address."""
    text: str | None = None
    note: str = ""
    """What of it is not shown, and why."""


def shown_files(result: Result) -> list[ShownFile]:
    """The first files of a run, as far as they are there."""
    files: list[ShownFile] = []
    room = _MOST_EMBEDDED
    for output in result.outputs[:MOST_FILES]:
        files.append(_show_file(result.path, output, room))
        room -= len(files[-1].picture) + len(files[-1].text or "")
    return files


def _read_file(record: Path | None, output: Output) -> tuple[bytes, int, str]:
    """What there is to show of a file, its size, and why nothing can be shown.

    Only what is in the record is shown: elsewhere, whatever the result says, is not for a page that may be sent on.
    """
    why = "it is not in the record"
    try:
        if record is not None:
            with open_file(record, f"{OUTPUTS}/{output.path}") as opened:
                return opened.read(_LARGEST_PICTURE + 1), opened.seek(0, 2), ""
    except RecordError:
        why = "it is no plain file of the record"
    except (OSError, ValueError) as error:
        why = why if isinstance(error, FileNotFoundError) else "it cannot be read"
    return b"", output.bytes, why


def _show_file(record: Path | None, output: Output, room: int) -> ShownFile:
    data, size, why = _read_file(record, output)
    kind = picture_kind(data, output.path)
    text = None if kind else _text(data[:_LARGEST_TEXT])
    picture = note = ""
    if kind:
        largest = _LARGEST_DRAWING if kind == "image/svg+xml" else _LARGEST_PICTURE
        width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
        if size > largest:
            why = f"a picture of more than {format_bytes(largest)}"
        elif len(data) * 4 // 3 > room:
            why = _FULL
        elif kind == "image/png" and width * height > _MOST_PIXELS:
            why = f"a picture of {width} x {height} pixels"
        else:
            picture = f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"
    elif text and len(text) > room:
        text, why = None, _FULL
    elif text:
        lines = text.splitlines()
        note = "" if size <= _LARGEST_TEXT and len(lines) <= _MOST_LINES else "the beginning of it"
        text = "\n".join(lines[:_MOST_LINES])
    name = clip_middle(output.path, _LONGEST_NAME).translate({ord("\n"): "\\n", ord("\t"): "\\t"})
    ranks = name_ranks(output.ranks) if output.ranks else ""
    return ShownFile(name, format_bytes(size), ranks, picture, text or None, f"not shown: {why}" if why else note)


def picture_kind(data: bytes, name: str) -> str:
    """The media type of a picture that browsers show, by what is in it; empty for anything else."""
    head = data[:1000].lstrip(b"\xef\xbb\xbf \t\r\n")
    if name.lower().endswith(".svg") and head.startswith((b"<svg", b"<?xml", b"<!--", b"<!DOCTYPE svg")):
        return "image/svg+xml"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for sign, kind in _SIGNS.items() if data.startswith(sign)), "")


def _text(data: bytes) -> str | None:
    """Bytes as text; None where they are none. The last letter may be cut in two."""
    try:
        text = getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
