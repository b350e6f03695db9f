"""The texts of a page: highlighted sources, the output of ranks, and the files that a run wrote."""

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
_MOST_CHARACTERS = 1_000_000
"""Most characters of all sources, and of each: coloring takes a second per million."""
_MOST_SCRIPTS = 100
_LONGEST_LINE = 20_000
"""A source with a longer line has no colors."""
_CITATION = re.compile(r"([\w./-]+\.py):(\d+)|File \"([^\"]+\.py)\", line (\d+)")


_MOST_CITED, _AROUND = 3, 3
"""Cited lines in an excerpt, and the lines before and after each."""


class Source(NamedTuple):
    """A text with the markup of each of its lines."""

    name: str
    anchor: str
    """Line N has the id `<anchor>-N`."""
    lines: list[Markup]
    cut: bool
    """Whether the text is too long to be shown completely."""


def read_sources(record: Record) -> list[Source]:
    """Read the scripts in the record, the main script first, then the scenario."""
    script = Path(record.plan().script).name
    names = sorted(scripts_of(record), key=lambda name: name != script)[:_MOST_SCRIPTS]
    texts = [(name, f"L{number}", _read(record, name)) for number, name in enumerate(names)]
    texts.append((SCENARIO, "Y", record.scenario_text() or ""))
    shown_sources, remaining_chars = [], _MOST_CHARACTERS
    for name, anchor, text in texts if texts[-1][-1] else texts[:-1]:
        visible = text[: min(_LONGEST, remaining_chars)]
        shown_sources.append(Source(name, anchor, _highlight_lines(name, visible), len(text) > len(visible)))
        remaining_chars -= len(visible)
    return shown_sources


def link_citations(text: str, sources: list[Source]) -> Markup:
    """Link every `file.py:12` in a text whose source the page shows."""
    anchors = {source.name: source.anchor for source in sources}
    parts, at = Markup(), 0
    for match in _CITATION.finditer(text):
        if anchor := anchors.get(Path(match[1] or match[3]).name):
            link = Markup('<a href="#{}-{}">{}</a>').format(anchor, match[2] or match[4], match[0])
            parts += escape(text[at : match.start()]) + link
            at = match.end()
    return parts + escape(text[at:])


def cite_lines(text: str, source: Source) -> list[tuple[int, Markup, bool]]:
    """Return the lines of a source around the first ones that a text cites: number, line, and whether it is cited."""
    citations = (match for match in _CITATION.finditer(text) if Path(match[1] or match[3]).name == source.name)
    cited = [*dict.fromkeys(int(match[2] or match[4]) for match in citations)][:_MOST_CITED]
    shown = {number for line in cited for number in range(line - _AROUND, line + _AROUND + 1)}
    return [(number, line, number in cited) for number, line in enumerate(source.lines, start=1) if number in shown]


def _read(record: Record, name: str) -> str:
    with suppress(OSError):
        return read_beginning(record.path, name)
    return ""


def _highlight_lines(name: str, text: str) -> list[Markup]:
    if "\0" in text or max(map(len, text.split("\n"))) > _LONGEST_LINE:  # Pygments is slow: it handles each token
        return [escape(line) for line in text.rstrip("\n").split("\n")]
    lexer = YamlLexer(stripnl=False) if name.endswith(".yaml") else PythonLexer(stripnl=False)
    return [Markup(line) for line in highlight(text, lexer, HtmlFormatter(nowrap=True)).rstrip("\n").split("\n")]


MOST_LINES = 6000
"""Limit for all ranks together."""
_MOST_BYTES_OF_A_RANK = 512 * 1024
_LONGEST_LOG_LINE = 2000
_MOST_SENTENCES = 3
_HEAD_SHARE = 0.25
"""The share of a shortened log that is its beginning; the end is more informative."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


class LogLine(NamedTuple):
    """A line that a rank printed."""

    rank: int
    """-1: the scenario's own check."""
    stream: int
    """1: standard output, 2: standard error, 3: terminal; 0: a note about lines that were left out."""
    time: float
    """Unix time."""
    text: str


def read_log_lines(record: Record) -> tuple[list[LogLine], list[str]]:
    """Return the lines of all ranks by time, and sentences about the ranks whose logs were shortened."""
    entries: dict[int, list[IndexEntry]] = defaultdict(list)
    with suppress(OSError), open_file(record.path, INDEX, MOST_LINES_BYTES) as file:
        for entry in IndexReader().read(file):
            entries[entry.rank].append(entry)
    limit = max(20, MOST_LINES // max(1, len(entries)))
    selected = [_select_lines(record, rank, rank_entries, limit) for rank, rank_entries in sorted(entries.items())]
    left_out = [sentence for _, sentence in selected if sentence]
    if (cut := len(left_out)) > _MOST_SENTENCES:
        what = f"the beginning and the end of the output of {cut} ranks"
        left_out = [f"The page has only {what}; the whole is in {LOGS}/"]
    return sorted((line for lines, _ in selected for line in lines), key=lambda line: line.time), left_out


def _select_lines(record: Record, rank: int, entries: list[IndexEntry], limit: int) -> tuple[list[LogLine], str]:
    total, head_bytes = sum(entry.length for entry in entries), int(_MOST_BYTES_OF_A_RANK * _HEAD_SHARE)
    if total <= _MOST_BYTES_OF_A_RANK:
        lines = list(_join_lines(record, rank, entries))
        if len(lines) <= limit:
            return lines, ""
    else:
        tail_from = total - (_MOST_BYTES_OF_A_RANK - head_bytes)
        lines = list(_join_lines(record, rank, [e for e in entries if e.offset + e.length <= head_bytes]))
        lines += _join_lines(record, rank, [e for e in entries if e.offset >= tail_from])
    head_count = int(limit * _HEAD_SHARE)
    head, tail = lines[:head_count], lines[head_count:][head_count - limit :]
    gap_time = tail[0].time if tail else head[-1].time if head else entries[0].time
    source, log_path = f"rank {rank}" if rank >= 0 else "the check", f"{LOGS}/{rank_log(rank)}"
    gap = LogLine(rank, 0, gap_time, f"… left out here; the whole log is {log_path} in the record …")
    left_out = f"The page has only the beginning and the end of the output of {source} ({format_bytes(total)})"
    return [*head, gap, *tail], f"{left_out}; the whole is in {log_path}"


def _join_lines(record: Record, rank: int, entries: list[IndexEntry]) -> Iterator[LogLine]:
    """Join pieces of a log into complete lines."""
    joiner = LineJoiner()
    with suppress(OSError), open_file(record.path, f"{LOGS}/{rank_log(rank)}") as file:
        for _, stream, offset, length, time in entries:
            file.seek(offset)
            for line in joiner.join(Piece(rank, stream, time, file.read(min(length, _MOST_BYTES_OF_A_RANK)))):
                yield LogLine(*line[:3], clean_line(line.data))
    for line in joiner.rest():
        yield LogLine(*line[:3], clean_line(line.data))


def clean_line(line: bytes) -> str:
    """Return the text of a line without escape sequences; if carriage returns overwrote it, its last state."""
    text = line.decode("utf-8", "backslashreplace").rstrip("\r").rpartition("\r")[2]
    text = sanitize_plain(_ESCAPES.sub("", text))
    return text if len(text) <= _LONGEST_LOG_LINE else f"{text[:_LONGEST_LOG_LINE]}… ({len(text)} characters)"


MOST_FILES = 200
"""The number of files that the page names."""
_MOST_EMBEDDED = 8 * 1000**2
"""Bytes of all files that the page embeds."""
_LARGEST_PICTURE = 2 * 1000**2
_LARGEST_DRAWING = 500 * 1000
"""Limit for SVG, which browsers have to compute, not only decode."""
_LARGEST_TEXT = 32 * 1000
"""Bytes; of a longer text the page shows the beginning."""
_MOST_LINES = 400
_MOST_PIXELS = 50_000_000
_LONGEST_NAME = 200
_PAGE_IS_FULL = "the page is full"
_SIGNS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


class ShownFile(NamedTuple):
    """A file as the page shows it."""

    path: str
    """Path in the record."""
    size: str
    ranks: str
    """The ranks that wrote it."""
    picture: str = ""
    """A `data:` address; empty if the file is not a picture."""
    text: str | None = None
    note: str = ""
    """What is not shown, and why."""


def collect_shown_files(result: Result) -> list[ShownFile]:
    """Return the first files of a run, as far as the record holds them."""
    files: list[ShownFile] = []
    remaining_chars = _MOST_EMBEDDED
    for output in result.outputs[:MOST_FILES]:
        files.append(_show_file(result.path, output, remaining_chars))
        remaining_chars -= len(files[-1].picture) + len(files[-1].text or "")
    return files


def _read_file(record: Path | None, output: Output) -> tuple[bytes, int, str]:
    """Read what the page shows of a file; return it with the file's size, and why nothing can be shown.

    Only files in the record are shown. Other paths may lead to private files, and people send pages to others.
    """
    reason = "it is not in the record"
    try:
        if record is not None:
            with open_file(record, f"{OUTPUTS}/{output.path}") as file:
                return file.read(_LARGEST_PICTURE + 1), file.seek(0, 2), ""
    except RecordError:
        reason = "it is not a plain file of the record"
    except (OSError, ValueError) as error:
        reason = reason if isinstance(error, FileNotFoundError) else "it is unreadable"
    return b"", output.bytes, reason


def _show_file(record: Path | None, output: Output, remaining_chars: int) -> ShownFile:
    data, size, reason = _read_file(record, output)
    kind = picture_kind(data, output.path)
    text = None if kind else _decode_text(data[:_LARGEST_TEXT])
    picture = note = ""
    if kind:
        limit_bytes = _LARGEST_DRAWING if kind == "image/svg+xml" else _LARGEST_PICTURE
        width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
        if size > limit_bytes:
            reason = f"a picture of more than {format_bytes(limit_bytes)}"
        elif len(data) * 4 // 3 > remaining_chars:
            reason = _PAGE_IS_FULL
        elif kind == "image/png" and width * height > _MOST_PIXELS:
            reason = f"a picture of {width} x {height} pixels"
        else:
            picture = f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"
    elif text and len(text) > remaining_chars:
        text, reason = None, _PAGE_IS_FULL
    elif text:
        lines = text.splitlines()
        note = "" if size <= _LARGEST_TEXT and len(lines) <= _MOST_LINES else "only its beginning"
        text = "\n".join(lines[:_MOST_LINES])
    name = clip_middle(output.path, _LONGEST_NAME).translate({ord("\n"): "\\n", ord("\t"): "\\t"})
    ranks = name_ranks(output.ranks) if output.ranks else ""
    return ShownFile(name, format_bytes(size), ranks, picture, text or None, f"not shown: {reason}" if reason else note)


def picture_kind(data: bytes, name: str) -> str:
    """Return the media type of a picture that browsers show, judged by its bytes; empty for anything else."""
    head = data[:1000].lstrip(b"\xef\xbb\xbf \t\r\n")
    if name.lower().endswith(".svg") and head.startswith((b"<svg", b"<?xml", b"<!--", b"<!DOCTYPE svg")):
        return "image/svg+xml"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for sign, kind in _SIGNS.items() if data.startswith(sign)), "")


def _decode_text(data: bytes) -> str | None:
    """Decode bytes as text; return None if they are not text. The last character may be incomplete."""
    try:
        text = getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
