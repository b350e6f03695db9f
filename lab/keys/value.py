"""A value in a scenario file: what it is, where it stands, and how it is refused.

The kind of a scalar follows YAML 1.1 as PyYAML resolves it, with two differences that people expect: `1e-6` is a
number, and numbers in base 8 or 60 (`010`, `1:30`) are refused by what reads them rather than silently converted.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lab.keys.problems import InvalidError, Position, Reading, odd_space, shown
from lab.words import clip

if TYPE_CHECKING:  # a plain script is run without YAML
    from yaml.nodes import Node

NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
QUOTABLE = ("boolean", "integer", "number")
"""Kinds of scalars that are text in quotes."""
TRUE = ("yes", "true", "on")
"""What YAML reads as true, in lower case."""

_KINDS = {"null": "nothing", "bool": "boolean", "int": "integer", "float": "number"}


class Value:
    """One value in a scenario file; its field is named as in `expect.tolerance`, empty for the whole scenario."""

    def __init__(self, node: Node, field: str, reading: Reading, key: Value | None = None) -> None:
        self.field = field
        self.reading = reading
        self.where = Position.of(node.start_mark)
        self.key_where = key.where if key else self.where
        """Of a value in a mapping, where its key stands."""
        self.raw: Any = node.value
        """Of a scalar, the text that stands in the file."""
        self._node: Any = node

    @cached_property
    def kind(self) -> str:
        """`nothing`, `boolean`, `integer`, `number`, `text`, `list` or `mapping`; in quotes it is always text."""
        if self._node.id != "scalar":
            return "list" if self._node.id == "sequence" else "mapping"
        if self._node.style:
            return "text"
        kind = _KINDS.get(self._node.tag.rpartition(":")[2], "text")
        return "number" if kind == "text" and re.fullmatch(NUMBER, self.raw) else kind

    @property
    def mark(self) -> Any:
        """The place, as YAML marks it."""
        return self._node.start_mark

    def problem(self, message: str) -> InvalidError:
        """What is wrong with it, in words."""
        return InvalidError(self.where, f"{self.field}: {message}" if self.field else message)

    def refused(self, allowed: str, tip: str = "") -> InvalidError:
        """It is not what its field allows."""
        found = f"found {self.describe()}{tip}; allowed: {allowed}"
        return self.problem(found if self.field else f"the scenario: {found}")

    def describe(self) -> str:
        """What it is, for a person: `the number 3`, `'text'`, `a list`."""
        if self.kind in ("list", "mapping"):
            return f"a {self.kind}"
        if self.kind == "nothing":
            return "nothing"
        if self.kind == "text":
            return shown(self.raw)
        word = clip(self.raw, 40)
        if self.kind != "boolean":
            return f"the number {word}"
        read_as = "true" if word.lower() in TRUE else "false"
        return f"the boolean {word}" + ("" if word.lower() == read_as else f" (YAML reads it as {read_as})")

    def items(self, allowed: str) -> list[Value]:
        """Those of a list; anything else is refused."""
        if self.kind != "list":
            raise self.refused(allowed)
        return [Value(node, f"{self.field}[{index}]", self.reading) for index, node in enumerate(self.raw)]

    def pairs(self, allowed: str) -> list[tuple[Value, Value]]:
        """Keys and values of a mapping, in order; a key that comes a second time is a problem and left out."""
        if self.kind != "mapping":
            raise self.refused(allowed)
        first_line: dict[tuple[str, str], int] = {}
        found = []
        for key_node, node in self.raw:
            key = Value(key_node, self.field, self.reading)
            name = key.raw if key_node.id == "scalar" else ""
            if name and (key.kind, name) in first_line:
                first = f"it is on line {first_line[key.kind, name]} already; remove one of the two"
                self.reading.add(*key.problem(f"duplicate key {shown(name)}; {first}").args)
                continue
            first_line[key.kind, name] = key.where.line
            found.append((key, Value(node, f"{self.field}.{name}" if self.field else name, self.reading, key)))
        return found

    def as_key(self) -> str:
        """The text of a key; anything else is refused."""
        if self._node.tag.endswith(":merge"):
            raise InvalidError(self.where, "merge keys (<<) are not supported; allowed: the keys written out")
        if self.kind != "text" or not self.raw:
            found = "an empty key" if self.raw == "" else f"{self.describe()} as a key"
            quote = f" (in quotes: '{self.raw}')" if self.kind in QUOTABLE else ""
            raise self.problem(f"found {found}; allowed: text{quote}")
        if not self._node.style and self.raw != self.raw.lstrip():
            raise self.problem(odd_space(self.raw[0]))
        return str(self.raw)
