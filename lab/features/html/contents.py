"""The texts of a page: sources with colours, what ranks printed, and the files that a run made."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from markupsafe import Markup, escape
from pygments.lexers.data import YamlLexer
from pygments.lexers.python import PythonLexer
from pygments.token import STANDARD_TYPES

from lab.errors import RecordError
from lab.features.records.records import scripts_of
from lab.record.layout import INDEX, LOGS, OUTPUTS, SCENARIO, rank_log
from lab.record.read import IndexReader, Record
from lab.record.record_files import MOST_LINES_BYTES, open_file, read_beginning
from lab.record.result import Output, Result
from lab.report.harmless import harmless, plain
from lab.words import clip_middle, format_bytes, name_ranks, plural

_LONGEST = 400_000
_MOST_TOGETHER = 1_000_000
"""Characters of all sources, and of each: to color them takes a second each million."""
_MOST_SCRIPTS = 100
_LONGEST_LINE = 20_000
"""A source with a longer line has no colors."""
_CITATION = re.compile(r"([\w./-]+\.py):(\d+)|File \"([^\"]+\.py)\", line (\d+)")


@dataclass(frozen=True)
class Source:
    """A text with the markup of each of its lines."""

    name: str
    anchor: str
    """Line N has the id `<anchor>-N`."""
    lines: list[Markup]
    cut: bool
    """Whether the text was too long to be shown whole."""


def sources(record: Record) -> list[Source]:
    """The script, or scripts, that the record holds, then the scenario."""
    named = Path(record.plan().script).name
    scripts = sorted(scripts_of(record), key=lambda name: name != named)
    texts = [(name, f"L{number}", _read(record, name)) for number, name in enumerate(scripts[:_MOST_SCRIPTS])]
    scenario = record.scenario_text()
    texts += [(SCENARIO, "Y", scenario)] if scenario else []
    found, room = [], _MOST_TOGETHER
    for name, anchor, text in texts:
        most = min(_LONGEST, room)
        found.append(Source(name, anchor, _coloured(name, text[:most]), len(text) > most))
        room -= min(len(text), most)
    return found


def cite(text: str, known: list[Source]) -> Markup:
    """The text with a link at every `file.py:12` of a source that the page shows."""
    anchors = {source.name: source.anchor for source in known}
    parts: list[Markup] = []
    at = 0
    for found in _CITATION.finditer(text):
        anchor = anchors.get(Path(found[1] or found[3]).name)
        if anchor is None:
            continue
        parts.append(escape(text[at : found.start()]))
        parts.append(Markup('<a href="#{}-{}">{}</a>').format(anchor, found[2] or found[4], found[0]))
        at = found.end()
    parts.append(escape(text[at:]))
    return Markup("").join(parts)


def _read(record: Record, name: str) -> str:
    try:
        return read_beginning(record.path, name)
    except OSError:
        return ""


def _coloured(name: str, text: str) -> list[Markup]:
    if (
        "\0" in text or max(map(len, text.split("\n"))) > _LONGEST_LINE
    ):  # nobody wrote it, and each token takes its time
        return [escape(line) for line in text.rstrip("\n").split("\n")]
    lexer = YamlLexer(stripnl=False) if name.endswith(".yaml") else PythonLexer(stripnl=False)
    lines: list[list[Markup]] = [[]]  # of each line its parts: to append to a line would copy it
    for token, value in lexer.get_tokens(text):
        while token not in STANDARD_TYPES and token.parent:
            token = token.parent
        kind = STANDARD_TYPES.get(token, "")
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if part:
                shown = escape(part)
                lines[-1].append(Markup(f'<span class="{kind}">{shown}</span>') if kind else shown)
    while lines and not lines[-1]:
        lines.pop()
    return [Markup("").join(line) for line in lines]


MOST_LINES = 6000
"""Of all ranks together."""
_MOST_BYTES_OF_A_RANK = 512 * 1024
_LONGEST_LOG_LINE = 2000
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
    with suppress(OSError), open_file(record.path, INDEX, MOST_LINES_BYTES) as file:
        for rank, stream, offset, length, when in IndexReader().read(file):
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
_SIGNS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


@dataclass(frozen=True, kw_only=True)
class ShownFile:
    """A file as the page shows it."""

    path: str
    """In the record, harmless."""
    size: str
    ranks: str
    """Who made it."""
    picture: str = ""
    """A `data:` address."""
    text: str | None = None
    note: str = ""
    """What of it is not shown, and why."""


@dataclass(frozen=True, kw_only=True)
class ShownFiles:
    """Everything that a run made."""

    files: list[ShownFile] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """What the page does not show, a sentence each."""
    not_brought: tuple[str, ...] = ()
    """What did not come back from the nodes, with the reason."""

    def __bool__(self) -> bool:
        return bool(self.files or self.not_brought)


def shown_files(result: Result) -> ShownFiles:
    """The files of a run, as far as they are there."""
    shown = ShownFiles(not_brought=tuple(harmless(told) for told in result.outputs_left_out))
    room = _MOST_EMBEDDED
    for output in result.outputs[:MOST_FILES]:
        data, size, why = _read_files(result.path, output)
        one = _shown(output, data, size, why, room)
        room -= len(one.picture) + len(one.text or "")
        shown.files.append(one)
    more = len(result.outputs) - len(shown.files)
    if more > 0:
        shown.left_out.append(f"{plural(more, 'file')} of the run beyond the first {MOST_FILES}.")
    return shown


def _read_files(record: Path | None, output: Output) -> tuple[bytes, int, str]:
    """What there is to show of a file, its size, and why nothing can be shown.

    Only what is in the record is shown: elsewhere, whatever the result says, is not for a page that may be sent on.
    """
    if record is None:
        return b"", output.bytes, "it is not in the record"
    try:
        with open_file(record, f"{OUTPUTS}/{output.path}") as opened:
            return opened.read(_LARGEST_PICTURE + 1), opened.seek(0, 2), ""
    except FileNotFoundError:
        return b"", output.bytes, "it is not in the record"
    except RecordError:
        return b"", output.bytes, "it is no plain file of the record"
    except (OSError, ValueError):
        return b"", output.bytes, "it cannot be read"


def _shown(output: Output, data: bytes, size: int, why: str, room: int) -> ShownFile:
    name = harmless(clip_middle(output.path, _LONGEST_NAME)).translate({ord("\n"): "\\n", ord("\t"): "\\t"})
    ranks = name_ranks(output.ranks) if output.ranks else ""
    file = ShownFile(path=name, size=format_bytes(size), ranks=ranks, note=f"not shown: {why}" if why else "")
    if why or not data:
        return file
    kind = picture_kind(data, output.path)
    if kind:
        largest = _LARGEST_DRAWING if kind == "image/svg+xml" else _LARGEST_PICTURE
        width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
        if size > largest:
            why = f"a picture of more than {format_bytes(largest)}"
        elif len(data) * 4 // 3 > room:
            why = "the page holds as much as it may"
        elif kind == "image/png" and width * height > _MOST_PIXELS:
            why = f"a picture of {width} x {height} pixels"
        if why:
            return replace(file, note=f"not shown: {why}")
        return replace(file, picture=f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}")
    text = _text(data[:_LARGEST_TEXT])
    if text is None:
        return file
    if len(text) > room:
        return replace(file, note="not shown: the page holds as much as it may")
    lines = text.splitlines()
    whole = size <= _LARGEST_TEXT and len(lines) <= _MOST_LINES
    return replace(file, text=harmless("\n".join(lines[:_MOST_LINES])), note="" if whole else "the beginning of it")


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
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(data) - 3 or error.reason != "unexpected end of data":
            return None
        text = data[: error.start].decode("utf-8")
    return None if "\0" in text else text
