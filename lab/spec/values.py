"""What one YAML node means: readers that return a value, or say what was found and what is allowed.

A reader takes a node and the name of its field (`resources.memory`). The kind of a scalar follows YAML 1.1 as PyYAML
resolves it, with two differences that people expect: `1e-6` is a number, and numbers in base 8 or 60 (`010`, `1:30`)
are refused rather than silently converted.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from lab.errors import UsageError
from lab.spec.document import position_of
from lab.spec.problems import InvalidError, Problems, did_you_mean, shown
from lab.spec.units import DURATIONS_ALLOWED, SIZES_ALLOWED, parse_duration, parse_size
from lab.words import clip

Kind = Literal["nothing", "boolean", "integer", "number", "text", "list", "mapping"]
T = TypeVar("T")

_KINDS: dict[str, Kind] = {"null": "nothing", "bool": "boolean", "int": "integer", "float": "number"}
_TRUE = ("yes", "true", "on")
_INTEGER = re.compile(r"[+-]?(?:0|[1-9][0-9]*)")
_COUNT = re.compile(r"0|-?[1-9][0-9]*")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONGEST_INTEGER = 1000


def kind_of(node: Node) -> Kind:
    """What kind of value a node is; quoted text and blocks are always text."""
    if isinstance(node, MappingNode):
        return "mapping"
    if isinstance(node, SequenceNode):
        return "list"
    if not isinstance(node, ScalarNode) or node.style is not None:
        return "text"
    kind = _KINDS.get(node.tag.rpartition(":")[2], "text")
    return "number" if kind == "text" and _NUMBER.fullmatch(node.value) else kind


def describe(node: Node) -> str:
    """What a node is, for a person: `the number 3`, `'text'`, `a list`."""
    kind = kind_of(node)
    if kind in ("list", "mapping"):
        return f"a {kind}"
    if kind == "nothing":
        return "nothing"
    if kind == "text":
        return shown(node.value)
    word = clip(node.value, 40)
    if kind != "boolean":
        return f"the number {word}"
    read_as = "true" if word.lower() in _TRUE else "false"
    return f"the boolean {word}" if word.lower() == read_as else f"the boolean {word} (YAML reads it as {read_as})"


def refused(node: Node, field: str, allowed: str, tip: str = "") -> InvalidError:
    """The problem of a node that is not what its field allows."""
    return InvalidError(position_of(node), f"{field}: found {describe(node)}{tip}; allowed: {allowed}")


def text(node: Node, field: str, allowed: str = "text", *, quotable: bool = True) -> str:
    """Text that may go into a file name, an argument or the environment: no NUL, no half of a surrogate pair.

    Args:
        node: the value.
        field: its name.
        allowed: what the field allows.
        quotable: whether a number or a boolean in quotes could be meant.
    """
    kind = kind_of(node)
    if kind in ("boolean", "integer", "number") and quotable:
        raise refused(node, field, f"{allowed} (put it in quotes: '{node.value[:40]}')")
    if kind != "text":
        raise refused(node, field, allowed)
    value: str = node.value
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise refused(node, field, f"{allowed}, without NUL characters and surrogates")
    return value


def text_or_number(node: Node, field: str) -> str:
    """Text, or the text of a number exactly as it is written."""
    if kind_of(node) in ("integer", "number"):
        return str(node.value)
    return text(node, field, "text or a number")


def boolean(node: Node, field: str) -> bool:
    """True or false, in any of YAML's spellings."""
    if kind_of(node) != "boolean":
        raise refused(node, field, "true or false")
    return node.value.lower() in _TRUE


def whole_number(node: Node, field: str, low: int, high: int) -> int:
    """A whole number from `low` to `high`, both included."""
    allowed = f"a whole number from {low} to {high}"
    if kind_of(node) == "text" and _COUNT.fullmatch(node.value):
        raise refused(node, field, f"{allowed}, without quotes")
    if kind_of(node) != "integer" or not _COUNT.fullmatch(node.value) or len(node.value) > 20:
        raise refused(node, field, allowed)
    value = int(node.value)
    if not low <= value <= high:
        raise refused(node, field, allowed)
    return value


def number(node: Node, field: str, allowed: str, fits: Callable[[float], bool]) -> float:
    """A finite number that fits."""
    if kind_of(node) not in ("integer", "number") or not _NUMBER.fullmatch(node.value):
        raise refused(node, field, allowed)
    value = float(node.value)
    if not math.isfinite(value) or not fits(value):
        raise refused(node, field, allowed)
    return value


def choice(node: Node, field: str, choices: Sequence[str]) -> str:
    """One of a few words."""
    allowed = ", ".join(choices)
    value = text(node, field, allowed, quotable=False)
    if value not in choices:
        raise refused(node, field, allowed, did_you_mean(value, choices))
    return value


def duration(node: Node, field: str, longest_s: float) -> float:
    """A duration in seconds, more than 0 and at most `longest_s`."""
    value = _measure(node, field, DURATIONS_ALLOWED, parse_duration)
    if not 0 < value <= longest_s:
        raise refused(node, field, f"more than 0 and at most {longest_s / 3600:g}h")
    return value


def size(node: Node, field: str, low: int, high: int) -> int:
    """A size in bytes from `low` to `high`, both included."""
    value = _measure(node, field, SIZES_ALLOWED, parse_size)
    if not low <= value <= high:
        raise refused(node, field, f"from {low >> 20}MiB to {high >> 40}TiB")
    return value


def pattern(node: Node, field: str) -> str:
    """A regular expression in Python's syntax."""
    value = text(node, field, "a regular expression")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(value, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else str(error).replace("\n", " ")
        raise refused(node, field, f"a regular expression ({why})") from None
    return value


def items(node: Node, field: str, allowed: str, read: Callable[[Node, str], T], problems: Problems) -> tuple[T, ...]:
    """A list of anything; every bad item is a problem of its own."""
    if not isinstance(node, SequenceNode):
        raise refused(node, field, allowed)
    values: list[T] = []
    for index, item in enumerate(node.value):
        with problems.attempt():
            values.append(read(item, f"{field}[{index}]"))
    return tuple(values)


def scalar(node: Node, field: str) -> Any:
    """A scalar of a note as plain data: None, bool, int, float or str."""
    kind = kind_of(node)
    if kind == "nothing":
        return None
    if kind == "boolean":
        return boolean(node, field)
    if kind == "integer":
        if not _INTEGER.fullmatch(node.value) or len(node.value) > _LONGEST_INTEGER:
            raise refused(node, field, "a decimal number without leading zeros, or text in quotes")
        return int(node.value)
    if kind == "number":
        word = node.value.lower()
        if word in (".nan", ".inf", "+.inf", "-.inf"):
            return float(word.replace(".", ""))
        if not _NUMBER.fullmatch(word):
            raise refused(node, field, "a decimal number, or text in quotes")
        return float(word)
    return text(node, field)


def _measure(node: Node, field: str, allowed: str, parse: Callable[[str], T]) -> T:
    if kind_of(node) in ("list", "mapping", "nothing", "boolean"):
        raise refused(node, field, allowed)
    try:
        return parse(node.value)
    except UsageError:
        raise refused(node, field, allowed) from None
