"""The scenario of a record as plain data, and the scripts that are in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.record.read import Record
from lab.record.record_files import list_names

_LONGEST_NUMBER = 300
"""Characters; a longer scalar of a scenario stays text."""


def scenario_keys(record: Record) -> Mapping[str, Any]:
    """The keys of the scenario on record, as plain data; empty where it cannot be read, or is no possible scenario.

    Its bounds are those of any scenario: so aliases, depth and size cannot make a view slow.
    """
    from lab.spec.document import MAX_BYTES, node_of
    from lab.spec.reading import InvalidError

    text = record.scenario_text()
    if len(text) > MAX_BYTES:
        return {}
    try:
        data = _plain(node_of(text))
    except InvalidError:
        return {}
    return data if isinstance(data, dict) else {}


def _plain(node: Any) -> Any:
    """The plain data of a YAML node; what is no number, boolean or nothing is text."""
    import yaml

    if node.id == "mapping":
        return {str(key.value): _plain(value) for key, value in node.value}
    if node.id == "sequence":
        return [_plain(one) for one in node.value]
    if len(node.value) > _LONGEST_NUMBER:
        return node.value
    try:
        return yaml.SafeLoader("").construct_document(node)
    except (yaml.YAMLError, ValueError, OverflowError):
        return node.value


def scripts_of(record: Record) -> list[str]:
    """The names of the scripts in a record, in order."""
    return sorted(name for name in list_names(record.path) if name.endswith(".py"))
