"""Parse the bytes of a YAML file, within bounds, into a tree of nodes that know their positions.

The parser constructs no objects: a node holds the text in the file, and `lab.spec.reading` interprets it. So no tag
can make an object, and no alias, depth, or size can make the lab slow. The lab parses with libyaml if PyYAML has it.
If libyaml refuses a file, PyYAML's own parser, ten times slower, produces the message, because its messages are better.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent
from yaml.nodes import Node, ScalarNode
from yaml.reader import ReaderError

from lab.spec.kinds import Kind
from lab.spec.reading import InvalidError, Position, Reading, Value, clip_repr, describe_space, missing_file, names_in

MAX_BYTES = 1024 * 1024
MAX_NODES = 20_000
"""Most YAML nodes of one file; an alias counts as many nodes as it repeats."""
MAX_DEPTH = 20

_LOADER: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_START = Position()
_ENDS = ("end of stream", "'<stream end>'")
_KEY = r" *(?:- )*[\w.-]+:(?: |$)"
_UNEXPECTED_SPACE = r"(?:[ -]*|[ -]*[\w.-]+:[ ]*)([\u00a0\u1680\u2000-\u200b\u202f\u205f\u3000\ufeff])"
"""A Unicode space in the indentation, or after the colon of a key."""
_SUFFIXES = (".yaml", ".yml")
_TIPS = {
    "mapping values are not allowed here": "; check the indentation, and put text that contains ': ' in quotes",
    "could not find expected ':'": "; a key needs ': ' behind it",
    "found undefined alias": "; text that begins with * must be in quotes",
    "found character '%' that cannot start any token": "; text that begins with % must be in quotes",
    "found character '@' that cannot start any token": "; text that begins with @ must be in quotes",
    "found character '`' that cannot start any token": "; text that begins with ` must be in quotes",
    "expected alphabetic or numeric character": "; text that begins with & or * must be in quotes",
    "found unexpected end of stream": "; close the quote; text with a quote must be in quotes of the other kind",
    "found unknown escape character": "; use single quotes around text with backslashes",
    "expected ',' or ']'": "; a list that begins with [ ends with ], and text that begins with [ must be in quotes",
    "expected ',' or '}'": "; a mapping that begins with { ends with }, and text that begins with { must be in quotes",
    "expected <block end>, but found '<scalar>'": "; no text follows a quote; inside of '...' a ' is written ''",
}


def read_document(path: Path) -> Node:
    """Return the root node of a YAML file with one document; an alias is the same node as its anchor."""
    return node_of(_decode(_read_bytes(path)))


def node_of(text: str) -> Node:
    """Return the root node of a YAML text, as `read_document` does for a file."""
    try:
        root = _parse(text, _LOADER)
    except (yaml.YAMLError, ValueError, OverflowError):
        root = _parse_or_explain(text)
    if root is None or (isinstance(root, ScalarNode) and not root.value and not root.style):
        raise InvalidError(_START, "the file is empty; allowed: a mapping with at least the key 'script'")
    return root


def read_value(kind: Kind, text: str, source: str, field: str) -> Any:
    """Read one field from a YAML text that is not in a file.

    Args:
        kind: kind of the field.
        text: the YAML text.
        source: name of the text's origin in errors.
        field: name of the field in errors.

    Raises:
        ScenarioError: it is not allowed; one line for each problem.
    """
    reading, data = Reading(Path(source)), None
    with reading.attempt():
        data = kind.read(Value(node_of(text), field, reading))
    reading.raise_if_any()
    return data


def _parse(text: str, loader: Any) -> Node | None:
    _check_bounds(yaml.parse(text, Loader=loader))
    return yaml.compose(text, Loader=loader)


def _check_bounds(events: Iterable[Any]) -> None:
    """Refuse tags, and too many or too deeply nested values, before the parser makes nodes of them."""
    count = 0
    opened: list[tuple[str | None, int]] = []  # anchor, number of values before it
    sizes: dict[str | None, int] = {}
    for event in events:
        if isinstance(event, CollectionEndEvent):
            anchor, before = opened.pop()
            sizes[anchor] = count - before
        if not isinstance(event, NodeEvent):
            continue
        where, is_alias = Position.of(event.start_mark), isinstance(event, AliasEvent)
        if is_alias and event.anchor in (anchor for anchor, _ in opened):
            raise InvalidError(where, f"alias *{event.anchor} refers to a value that contains it; write the value out")
        count += sizes.get(event.anchor, 1) if is_alias else 1
        if count > MAX_NODES:
            what = f"alias *{event.anchor} repeats" if is_alias else "the file has"
            raise InvalidError(where, f"{what} too many values; allowed: {MAX_NODES}, with aliases written out")
        if len(opened) == MAX_DEPTH and not is_alias:
            raise InvalidError(where, f"nested too deep; allowed: {MAX_DEPTH} levels")
        if (tag := getattr(event, "tag", None)) is not None:
            message = f"found the tag {clip_repr(tag.replace('tag:yaml.org,2002:', '!!'))}"
            raise InvalidError(where, f"{message}; tags are not supported; allowed: the value without a tag")
        if isinstance(event, CollectionStartEvent):
            opened.append((event.anchor, count - 1))
        elif not is_alias:
            sizes[event.anchor] = 1


def _parse_or_explain(text: str) -> Node | None:
    loader: Any = None
    try:
        loader = yaml.SafeLoader(text)
        _check_bounds(iter(loader.get_event, None))
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except ReaderError as error:
        message = f"found the control character {chr(error.character)!r}"
        raise InvalidError(_position_in(text, error.position), f"{message}; allowed: printable text") from None
    except yaml.MarkedYAMLError as error:
        raise _syntax_problem(error, text) from None
    except (ValueError, OverflowError):  # from chr(), for an escape such as "\UFFFFFFFF"
        where = Position.of(loader.get_mark()) if loader else _START
        message = "not valid YAML: found an escape that names no character; allowed: up to \\U0010FFFF"
        raise InvalidError(where, message) from None


def _syntax_problem(error: yaml.MarkedYAMLError, text: str) -> InvalidError:
    problem = error.problem or str(error)
    unclosed = problem.endswith(_ENDS)  # then the opening character is the useful position
    location = (error.context_mark if unclosed else None) or error.problem_mark
    where = Position.of(location) if location else _START
    if problem == "but found another document":
        return InvalidError(where, "found a second document; allowed: one document a file; remove the '---'")
    lines = text.splitlines()
    if location and (unexpected := _find_unexpected_space(lines, error.problem_mark or location)):
        return unexpected
    line = lines[where.line - 1] if where.line <= len(lines) else ""
    indentation = line[: len(line) - len(line.lstrip())]
    if "\t" in indentation:
        tab = Position(where.line, indentation.index("\t") + 1)
        return InvalidError(tab, "found a tab in the indentation; allowed: spaces")
    tip = next((tip for start, tip in _TIPS.items() if problem.startswith(start)), "")
    context = f"{error.context}, " if error.context else ""
    return InvalidError(where, f"not valid YAML: {context}{problem}{tip}".replace("\n", " "))


def _find_unexpected_space(lines: list[str], location: Any) -> InvalidError | None:
    """Find a Unicode space where YAML needs a plain one, on this line or on the lines it continues."""
    for number in range(min(location.line + 1, len(lines)), 0, -1):
        line = lines[number - 1]
        if match := re.match(_UNEXPECTED_SPACE, line):
            return InvalidError(Position(number, match.start(1) + 1), describe_space(match[1]))
        if location.column > line.find(":") >= 0 if number == location.line + 1 else re.match(_KEY, line):
            break
    return None


def _read_bytes(path: Path) -> bytes:
    from lab.spec.reading import describe_contents

    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            what = "is a folder; allowed: a scenario file"
            raise InvalidError(_START, describe_contents(what, names_in(path, *_SUFFIXES)))
        if not stat.S_ISREG(mode):
            raise InvalidError(_START, "is not a regular file; allowed: a scenario file")
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InvalidError(_START, missing_file("file", path, *_SUFFIXES)) from None
    except (OSError, ValueError) as error:
        raise InvalidError(_START, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MAX_BYTES:
        raise InvalidError(_START, "the file is larger than 1 MiB; allowed: up to 1 MiB")
    return data


def _decode(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InvalidError(_START, "the file is UTF-16; allowed: UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("utf-8", errors="replace")
        where = _position_in(before, len(before))
        raise InvalidError(where, f"found the byte 0x{error.object[error.start]:02x}; allowed: UTF-8 text") from None
    nul = text.find("\0")  # PyYAML treats it as the end of the file
    if nul >= 0:
        raise InvalidError(_position_in(text, nul), "found a NUL character; allowed: printable text")
    return text


def _position_in(text: str, offset: int) -> Position:
    return Position(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))
