"""Files that a run made, on its page: pictures as pictures, the beginning of texts, of all others name and size.

A worker chose their names and what is in them. Nothing of them becomes markup: a picture, SVG too, is the source of an
`img` element, where no script runs and nothing is loaded; a text is text.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.errors import RecordError
from lab.record.layout import OUTPUTS
from lab.record.record_files import open_file
from lab.record.result import Output, Result
from lab.report.harmless import harmless
from lab.words import clip_middle, format_bytes, name_ranks, plural

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
        data, size, why = _read(result.path, output)
        one = _shown(output, data, size, why, room)
        room -= len(one.picture) + len(one.text or "")
        shown.files.append(one)
    more = len(result.outputs) - len(shown.files)
    if more > 0:
        shown.left_out.append(f"{plural(more, 'file')} of the run beyond the first {MOST_FILES}.")
    return shown


def _read(record: Path | None, output: Output) -> tuple[bytes, int, str]:
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
        problem = _problem(kind, data, size, room)
        if problem:
            return replace(file, note=f"not shown: {problem}")
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


def _problem(kind: str, data: bytes, size: int, room: int) -> str:
    """Why a picture is not shown; empty where it is."""
    largest = _LARGEST_DRAWING if kind == "image/svg+xml" else _LARGEST_PICTURE
    if size > largest:
        return f"a picture of more than {format_bytes(largest)}"
    if len(data) * 4 // 3 > room:
        return "the page holds as much as it may"
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    if kind == "image/png" and width * height > _MOST_PIXELS:
        return f"a picture of {width} x {height} pixels"
    return ""


def _text(data: bytes) -> str | None:
    """Bytes as text; None where they are none. The last letter may be cut in two."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(data) - 3 or error.reason != "unexpected end of data":
            return None
        text = data[: error.start].decode("utf-8")
    return None if "\0" in text else text
