"""`lab.read_output`: reads a file of a rank in the check of a scenario, whatever the file contains.

A check reads what an untrusted script wrote. An unexpected file is an error with a sentence, never a wait, a crash,
or the use of all memory.
"""

from __future__ import annotations

import json
import os
import re
from functools import partial
from typing import Any

from ....node import files
from ....node.rank.check import FOLDER_VARIABLE, LEFT_OUT_VARIABLE

MAX_BYTES = 16 << 20
MAX_DEPTH = 100
"""Deepest nesting of lists and mappings in JSON."""
MAX_VALUES = 1_000_000
"""Most values in JSON: one byte can be a list, which takes 60."""
MAX_DIGITS = 400
"""Most digits of a number in JSON: more than any float needs, and few enough to parse fast."""
_KINDS = ("json", "text", "bytes")
_NO_STRUCTURE = re.compile(r"[^][{}]+")
_LONE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class OutputError(Exception):
    """A file of a rank does not exist, or a check cannot read it."""


OutputError.__module__ = "lab"


def read_output(
    path: str | os.PathLike[str], kind: str = "json", *, max_bytes: int = MAX_BYTES, folder: str = ""
) -> Any:
    """Read a file of a rank.

    Args:
        path: Of the file, relative to the working folder of the ranks.
        kind: `json`, `text` (UTF-8), or `bytes`.
        max_bytes: Limit of the file's size.
        folder: Its folder; empty: the folder of the check, `LAB_WORK_FOLDER`, or else the current one.

    Returns:
        The value of the JSON, a string, or bytes.

    Raises:
        OutputError: There is no such file, or it is not a regular file, too large, or not of this kind; or its JSON
            is nested more than 100 deep, has more than a million values, or a number that no float can hold.
        ValueError: There is no such kind.
    """
    if kind not in _KINDS:
        raise ValueError(f"kind is {kind!r}; allowed: {', '.join(_KINDS)}")
    top = os.path.realpath(folder or os.environ.get(FOLDER_VARIABLE) or os.getcwd())
    name = os.fsdecode(path)
    name = os.path.normpath(os.path.relpath(name, top) if os.path.isabs(name) else name)
    if name.split("/")[0] == ".." or "\0" in name:
        raise OutputError(f"{files.escape_path(name)!r} is not below the folder of the ranks")
    try:
        data = _read(top, name, max_bytes)
        return data if kind == "bytes" else _decode(data) if kind == "text" else parse_json(_decode(data))
    except (MemoryError, RecursionError) as error:
        raise OutputError(f"cannot read {files.escape_path(name)}: {type(error).__name__}") from None
    except OutputError as error:
        raise OutputError(f"{files.escape_path(name)} {error}") from None


def _read(top: str, path: str, max_bytes: int) -> bytes:
    try:
        descriptor = files.open_regular_file(top, path)
    except files.NotAFile as error:
        raise OutputError(str(error)) from None
    except FileNotFoundError:
        raise OutputError(_why_not_there(path)) from None
    except OSError as error:
        raise OutputError(f"cannot be read: {error.strerror}") from None
    with open(descriptor, "rb") as file:
        too_large = os.fstat(descriptor).st_size > max_bytes
        data = b"" if too_large else file.read(max_bytes + 1)
    if too_large or len(data) > max_bytes:
        raise OutputError(f"is larger than {max_bytes:,} bytes")
    return data


def _why_not_there(path: str) -> str:
    """Return why there is no such file: no rank wrote it, or the lab left it out."""
    if listed := os.environ.get(LEFT_OUT_VARIABLE):
        with open(listed, encoding="utf-8") as file:
            left_out = json.load(file)
        parts = files.escape_path(path).split("/")
        for end in range(len(parts), 0, -1):
            if why := left_out.get("/".join(parts[:end])):
                return f"is not among the files of the check: {why}"
    return "does not exist"


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise OutputError(f"is not text in UTF-8: byte {error.start} is {data[error.start]:#04x}") from None


def parse_json(text: str) -> Any:
    """Return the value of JSON.

    Raises:
        OutputError: It is not JSON, or exceeds a limit; the text is the end of a sentence.
    """
    _refuse_structure(text)
    try:
        value = json.loads(text, parse_int=partial(_number, kind=int), parse_float=_number, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise OutputError(f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    if _LONE_SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise OutputError("has an invalid character (a lone surrogate)") from None
    return value


def _refuse_structure(text: str) -> None:
    """Refuse JSON that is nested too deep or has too many values, before parsing it."""
    plain = text.replace("\\\\", "").replace('\\"', "")  # no quotes inside of strings are left
    if plain.count('"') > 4 * MAX_VALUES:
        raise OutputError(f"has more than {MAX_VALUES:,} values")
    outside = "".join(plain.split('"')[::2])
    depth = 0
    for bracket in _NO_STRUCTURE.sub("", outside)[: 2 * MAX_VALUES]:
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_DEPTH:
            raise OutputError(f"is nested more than {MAX_DEPTH} deep")
    if outside.count(",") + outside.count("[") + outside.count("{") > MAX_VALUES:
        raise OutputError(f"has more than {MAX_VALUES:,} values")


def _number(digits: str, kind: type = float) -> float:
    if len(digits) > MAX_DIGITS:
        raise OutputError(f"holds a number of {len(digits):,} digits; {MAX_DIGITS} are allowed")
    value: float = kind(digits)
    if value in (float("inf"), float("-inf")):
        raise OutputError(f"has a number that no float can hold: {digits[:40]}")
    return value


def _refuse(word: str) -> Any:
    raise OutputError(f"has {word}, which is not a number in JSON")
