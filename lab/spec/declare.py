"""The keys of a scenario: each is declared once, where its data is, as the metadata of a dataclass's field.

From that declaration come the reading of a file, what a record keeps, the JSON Schema and the reference
(`dev/reference`); the docstring under the field is the key's line of documentation.

Features add keys in the same way, by a dataclass of their own (`Feature.keys`). It is loaded when a file has a key that
is not the kernel's, and the values are kept in the field `extra` of the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, field, fields
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

from lab.feature import KEYS, find_entry, scenario_keys
from lab.spec.kinds import Kind, boolean_kind
from lab.spec.reading import Value, clip_repr, did_you_mean

T = TypeVar("T")


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


def key_field(
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


def feature_keys_field(place: str = "") -> Any:
    """The field `extra` of a dataclass: values of keys that features add to the mapping at this place of a file."""
    return field(default_factory=dict, metadata={"place": place})


@cache
def keys_of(declared: type) -> dict[str, Key]:
    """The keys that a dataclass declares, by name and in order."""
    found = {}
    for one in fields(declared):
        if "kind" in one.metadata:
            said, make = dict(one.metadata), cast("Any", one.default_factory)
            name, kind = said.pop("name") or one.name, said.pop("kind")
            default = one.default if make is MISSING else make()
            found[name] = Key(
                name, one.name, kind or section_kind(make), default, section=None if kind else make, **said
            )
    return found


@cache
def all_keys_of(declared: type) -> dict[str, Key]:
    """The keys that a dataclass declares, and those that features add to it."""
    found, place = dict(keys_of(declared)), _place(declared)
    if place is not None:
        for name, of_feature in scenario_keys().items():
            found |= {key.name: key for key in keys_of(of_feature).values() if f"{place}{key.name}" == name}
    return found


def get_feature_values(data: Any, declared: type[T]) -> T:
    """What a scenario, or a part of it, says of the keys of a feature, as the dataclass that declares them."""
    keys: dict[str, Key] = keys_of(cast("Any", declared))
    return declared(**{key.attribute: data.extra[key.name] for key in keys.values() if key.name in data.extra})


@cache
def _place(declared: type) -> str | None:
    """What stands before the name of a key that features add; None where they add none."""
    places = (one.metadata["place"] for one in fields(declared) if "place" in one.metadata)
    return next((f"{place}." if place else "" for place in places), None)


def _of_feature(name_value: Value, name: str, declared: type) -> Key:
    """The key that a feature adds; raises `InvalidError` where none does."""
    place = _place(declared)
    if place is not None:
        path = f"{place}{name}"
        of_feature = find_entry("keys", path)
        if of_feature is not None:
            return keys_of(of_feature)[name]
        if path in KEYS:
            raise name_value.problem(
                f"the key {clip_repr(name)} is one of the feature {KEYS[path]}, which is not there"
            )
    home = None if name_value.field else _home_of(name, declared)
    keys = all_keys_of(declared)
    meant = f", which belongs under '{home}:'" if home else did_you_mean(name, keys)
    raise name_value.problem(f"unknown key {clip_repr(name)}{meant}; allowed: {', '.join(keys)}")


def section_kind(declared: type) -> Kind:
    """A mapping whose keys a dataclass declares; true or false as well, where the dataclass has a field `on`."""
    is_switch, allowed = hasattr(declared, "on"), _allowed(declared, keys_of(declared))

    def read(value: Value) -> Any:
        if is_switch and value.kind == "boolean":
            return declared(on=boolean_kind().read(value))
        data = read_keys(value, declared)
        for one in keys_of(declared).values():
            if one.default is MISSING and all(name.raw != one.name for name, _ in value.pairs(allowed)):
                raise value.refused(_allowed(declared, keys_of(declared)), f" without the key {one.name!r}")
            if one.default is MISSING:
                data.setdefault(one.attribute, "")  # its problem is noted
        return declared(**data)

    def dump(data: Any) -> Any:
        return dump_keys(data) if not is_switch or data.on else False

    return Kind(allowed, read, {"type": ["boolean", "object"] if is_switch else "object"}, dump)


def _allowed(declared: type, keys: Mapping[str, Key]) -> str:
    switch = "true, false, or " if hasattr(declared, "on") else ""
    return f"{switch}a mapping with the key{'s' * (len(keys) > 1)} {', '.join(keys)}"


def read_keys(value: Value, declared: type) -> dict[str, Any]:
    """What a mapping says, by attribute of the dataclass that declares its keys, without what is a problem.

    Keys are read in the order of their declaration, those of features after all others. Those of the scenario itself
    are noted in `Reading.known`, for those that come after them.
    """
    keys, added, found = keys_of(declared), dict[str, Key](), {}
    allowed = "" if value.kind == "mapping" else _allowed(declared, all_keys_of(declared))
    for name_value, key_value in value.pairs(allowed):
        with value.reading.attempt():
            name = name_value.as_key()
            if name not in keys:
                added[name] = _of_feature(name_value, name, declared)
            found[name] = key_value
    data: dict[str, Any] = value.reading.known if not value.field else {}
    for key in keys.values():
        if key.name in found:
            with value.reading.attempt():
                data[key.attribute] = key.kind.read(found[key.name])
    for key in added.values():
        with value.reading.attempt():
            data.setdefault("extra", {})[key.name] = key.kind.read(found[key.name])
    return data


def read_all_keys(value: Value, declared: type) -> dict[str, Any] | None:
    """What a mapping says, as `read_keys`; None where one of its keys is a problem."""
    data = read_keys(value, declared)
    return data if len(data) == len(value.pairs("")) else None


def mapping_schema(declared: type, **more: Any) -> dict[str, Any]:
    """What JSON Schema says of a mapping with the keys of a dataclass and no others."""
    properties = {name: dict(one.kind.schema) for name, one in keys_of(declared).items()}
    return {"type": "object", "additionalProperties": False, "properties": properties, **more}


def dump_keys(data: Any) -> dict[str, Any]:
    """The data of a dataclass as a file would say it, without what is at its default."""
    values = [(key, getattr(data, key.attribute)) for key in keys_of(data.__class__).values()]
    place = _place(data.__class__)
    if place is not None:
        known = [*KEYS, *data.extra]  # in the order of the reference, whatever that of the file
        names = sorted(data.extra, key=known.index)
        values += [(keys_of(find_entry("keys", f"{place}{name}"))[name], data.extra[name]) for name in names]
    return {key.name: key.kind.dump(value) for key, value in values if key.always or value != key.default}


def _home_of(name: str, declared: type) -> str | None:
    """The section in which a key is known, such as `expect: tolerance`."""
    for key in all_keys_of(declared).values():
        if key.section is not None:
            if name in all_keys_of(key.section):
                return key.name
            deeper = _home_of(name, key.section)
            if deeper:
                return f"{key.name}: {deeper}"
    return None
