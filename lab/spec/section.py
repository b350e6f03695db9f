"""The mappings of a scenario: the keys that each of them knows, and reading them one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from yaml.nodes import MappingNode, Node, ScalarNode

from lab.spec.document import position_of
from lab.spec.problems import InvalidError, Problems, did_you_mean, shown
from lab.spec.values import describe, kind_of, refused

SCENARIO_KEYS = (
    "name",
    "learn",
    "predict",
    "nodes",
    "nproc_per_node",
    "backend",
    "script",
    "args",
    "env",
    "timeout",
    "cold",
    "resources",
    "volumes",
    "trace",
    "expect",
)
TRACE_KEYS = ("values",)
RESOURCES_KEYS = ("cpus", "memory", "gpus")
EXPECT_KEYS = ("exit", "notes", "logs", "calls", "check", "verdict", "culprit", "reason", "tolerance")
TOLERANCE_KEYS = ("relative", "absolute")
PLANNED_KEYS = ("faults", "network")
"""Names that a later version gives a meaning."""

_HOMES = dict.fromkeys(RESOURCES_KEYS, "resources")
_HOMES |= dict.fromkeys(EXPECT_KEYS, "expect")
_HOMES |= dict.fromkeys(TOLERANCE_KEYS, "expect: tolerance")

T = TypeVar("T")
D = TypeVar("D")


class Section:
    """One mapping whose keys are known.

    Args:
        node: the mapping.
        field: its name, such as `expect.tolerance`; empty for the whole scenario.
        keys: the keys that it may have.
        problems: takes what is wrong with the keys, and what the readers find wrong with the values.

    Raises:
        InvalidError: the node is no mapping.
    """

    def __init__(self, node: Node, field: str, keys: Sequence[str], problems: Problems) -> None:
        self._field = field
        self._problems = problems
        self._values: dict[str, Node] = {}
        for key, value in pairs(node, field, f"a mapping with the keys {', '.join(keys)}", problems):
            with problems.attempt():
                name = text_key(key, field)
                self._check_known(key, name, keys)
                self._values[name] = value

    def read(self, key: str, reader: Callable[[Node, str], T], default: D) -> T | D:
        """The value of a key; the default where the key is missing, or where its value is a problem."""
        value: T | D = default
        if key in self._values:
            with self._problems.attempt():
                value = reader(self._values[key], f"{self._field}.{key}" if self._field else key)
        return value

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def _check_known(self, node: Node, name: str, keys: Sequence[str]) -> None:
        if name in keys:
            return
        if not self._field and name in PLANNED_KEYS:
            planned = f"{name}: known, but not supported by this version yet; remove the key"
            raise InvalidError(position_of(node), planned)
        meant = did_you_mean(name, keys)
        if not self._field and name in _HOMES:
            meant = f", which belongs under '{_HOMES[name]}:'"
        unknown = f"{prefix_of(self._field)}unknown key {shown(name)}{meant}"
        raise InvalidError(position_of(node), f"{unknown}; allowed: {', '.join(keys)}")


def pairs(node: Node, field: str, allowed: str, problems: Problems) -> list[tuple[Node, Node]]:
    """The keys and values of a mapping, in order; a key that comes a second time is a problem and left out.

    Raises:
        InvalidError: the node is no mapping.
    """
    if not isinstance(node, MappingNode):
        raise refused(node, field or "the scenario", allowed)
    first_line: dict[tuple[str, str], int] = {}
    found = []
    for key, value in node.value:
        where = position_of(key)
        if isinstance(key, ScalarNode):
            identity = (kind_of(key), key.value)
            if identity in first_line:
                first = f"it is on line {first_line[identity]} already"
                problems.add(where, f"{prefix_of(field)}duplicate key {shown(key.value)}; {first}")
                continue
            first_line[identity] = where.line
        found.append((key, value))
    return found


def text_key(node: Node, field: str) -> str:
    """The text of a key.

    Raises:
        InvalidError: the key is not text.
    """
    if node.tag.endswith(":merge"):
        raise InvalidError(position_of(node), "merge keys (<<) are not supported; allowed: the keys written out")
    if kind_of(node) != "text" or not node.value:
        quote = f" (in quotes: '{node.value}')" if kind_of(node) in ("boolean", "integer", "number") else ""
        found = "an empty key" if node.value == "" else f"{describe(node)} as a key"
        raise InvalidError(position_of(node), f"{prefix_of(field)}found {found}; allowed: text{quote}")
    value: str = node.value
    return value


def prefix_of(field: str) -> str:
    """The name of a field as a message begins with it; empty for the whole scenario."""
    return f"{field}: " if field else ""
