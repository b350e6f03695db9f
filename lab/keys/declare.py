"""The keys of a scenario: each is declared once, where its data is, as the metadata of a dataclass's field.

From that declaration come the reading of a file, what a record keeps, the JSON Schema and the reference
(`dev/reference`); the docstring under the field is the key's line of documentation.
"""

from __future__ import annotations

from dataclasses import MISSING, field, fields
from functools import cache
from typing import Any, NamedTuple, cast

from lab.keys.kinds import Kind, boolean
from lab.keys.problems import did_you_mean, shown
from lab.keys.value import Value


class Key(NamedTuple):
    """One key of a mapping."""

    name: str
    """As a file writes it."""
    attribute: str
    kind: Kind
    default: Any
    """`MISSING` where it has to be given."""
    section: type | None
    """The dataclass of a mapping with keys of its own."""
    example: str
    default_text: str
    always: bool


def key(
    default: Any, kind: Kind | None = None, example: str = "", words: str = "", *, name: str = "", always: bool = False
) -> Any:
    """A dataclass's field that a key of the file sets.

    Args:
        default: its value where the file says nothing, or what makes it; `MISSING` where the file has to say it.
        kind: what its value may be; None for a mapping whose keys `default`, a dataclass, declares.
        words: the default in words, where the data does not say it.
        name: as a file writes it; by default that of the field.
        always: whether a record says it even where it is the default.
    """
    said = {"kind": kind, "example": example, "name": name, "default_text": words, "always": always}
    return field(default_factory=default, metadata=said) if callable(default) else field(default=default, metadata=said)


@cache
def keys_of(declared: type) -> dict[str, Key]:
    """The keys that a dataclass declares, by name and in order."""
    found = {}
    for one in fields(declared):
        if one.metadata:
            said, make = dict(one.metadata), cast("Any", one.default_factory)
            name, kind = said.pop("name") or one.name, said.pop("kind")
            default = one.default if make is MISSING else make()
            found[name] = Key(name, one.name, kind or section(make), default, section=None if kind else make, **said)
    return found


def section(declared: type) -> Kind:
    """A mapping whose keys a dataclass declares; true or false as well, where the dataclass has a field `on`."""
    names = ", ".join(keys_of(declared))
    switch = "on" in (one.name for one in fields(declared))
    allowed = f"{'true, false, or ' if switch else ''}a mapping with the key{'s' if ',' in names else ''} {names}"

    def read(value: Value) -> Any:
        said = {"on": boolean().read(value)} if switch and value.kind == "boolean" else read_keys(value, declared)
        return declared(**said)

    def dump(data: Any) -> Any:
        return dump_keys(data) if not switch or data.on else False

    return Kind(allowed, read, {"type": ["boolean", "object"] if switch else "object"}, dump)


def read_keys(value: Value, declared: type) -> dict[str, Any]:
    """What a mapping says, by attribute of the dataclass that declares its keys, without what is a problem.

    Keys are read in the order of their declaration. Those of the scenario itself are noted in `Reading.known`, for
    those that come after them.
    """
    keys, found = keys_of(declared), {}
    for name_value, key_value in value.pairs(section(declared).allowed):
        with value.reading.attempt():
            name = name_value.as_key()
            if name not in keys:
                home = None if value.field else _home_of(name, declared)
                meant = f", which belongs under '{home}:'" if home else did_you_mean(name, keys)
                raise name_value.problem(f"unknown key {shown(name)}{meant}; allowed: {', '.join(keys)}")
            found[name] = key_value
    data: dict[str, Any] = value.reading.known if not value.field else {}
    for key in keys.values():
        if key.name in found:
            with value.reading.attempt():
                data[key.attribute] = key.kind.read(found[key.name])
    return data


def dump_keys(data: Any) -> dict[str, Any]:
    """The data of a dataclass as a file would say it, without what is at its default."""
    values = [(key, getattr(data, key.attribute)) for key in keys_of(data.__class__).values()]
    return {key.name: key.kind.dump(value) for key, value in values if key.always or value != key.default}


def _home_of(name: str, declared: type) -> str | None:
    """The section in which a key is known, such as `expect: tolerance`."""
    for key in keys_of(declared).values():
        if key.section is not None:
            if name in keys_of(key.section):
                return key.name
            deeper = _home_of(name, key.section)
            if deeper:
                return f"{key.name}: {deeper}"
    return None
