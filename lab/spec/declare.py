"""Declare the keys of a scenario, each once, as metadata of the dataclass field that holds its value.

The reader of files, the record, the JSON Schema, and the reference (`dev/reference`) all use this declaration. The
docstring under the field is the key's line in the reference.

Features add keys in the same way, with a dataclass of their own (`Feature.keys`). The lab imports it only when a file
has a key that the kernel does not know. The values go into the field `extra` of the data.
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
    """Describe one key of a mapping."""

    name: str
    """The name in a file."""
    attribute: str
    kind: Kind
    default: Any
    """`MISSING` if a file must set the key."""
    section: type | None
    """The dataclass of a mapping that has keys of its own."""
    example: str
    default_text: str
    always: bool


def key_field(
    default: Any, kind: Kind | None = None, example: str = "", words: str = "", *, name: str = "", always: bool = False
) -> Any:
    """Declare a dataclass field that a key of the file sets.

    Args:
        default: value of a missing key, or a function that makes it; `MISSING` if the key is required.
        kind: which values are allowed; None for a mapping whose keys the dataclass `default` declares.
        example: an example for the reference.
        words: text for the default in the reference, if the data does not show it.
        name: name of the key in a file; the name of the field if empty.
        always: whether a record contains the key even at its default.
    """
    metadata = {"kind": kind, "example": example, "name": name, "default_text": words, "always": always}
    return field(**{"default_factory" if callable(default) else "default": default}, metadata=metadata)


def feature_keys_field(prefix: str = "") -> Any:
    """Declare the field `extra`: the values of keys that features add to the mapping with this prefix."""
    return field(default_factory=dict, metadata={"prefix": prefix})


@cache
def keys_of(declared: type) -> dict[str, Key]:
    """Return the keys that a dataclass declares, by name and in order."""
    keys = {}
    for one in fields(declared):
        if "kind" in one.metadata:
            metadata, make = dict(one.metadata), cast("Any", one.default_factory)
            name, kind = metadata.pop("name") or one.name, metadata.pop("kind")
            default = one.default if make is MISSING else make()
            keys[name] = Key(name, one.name, kind or section_kind(make), default, None if kind else make, **metadata)
    return keys


@cache
def all_keys_of(declared: type) -> dict[str, Key]:
    """Return the keys that a dataclass declares, and those that features add to it."""
    keys, prefix = dict(keys_of(declared)), _feature_prefix(declared)
    if prefix is not None:
        for name, of_feature in scenario_keys().items():
            keys |= {key.name: key for key in keys_of(of_feature).values() if f"{prefix}{key.name}" == name}
    return keys


def get_feature_values(data: Any, declared: type[T]) -> T:
    """Return the values of a feature's keys in a scenario, or in a part of it, as the feature's dataclass."""
    keys: dict[str, Key] = keys_of(cast("Any", declared))
    return declared(**{key.attribute: data.extra[key.name] for key in keys.values() if key.name in data.extra})


@cache
def _feature_prefix(declared: type) -> str | None:
    """Return the prefix of keys that features add to a mapping; None if features cannot add any."""
    prefixes = (one.metadata["prefix"] for one in fields(declared) if "prefix" in one.metadata)
    return next((f"{prefix}." if prefix else "" for prefix in prefixes), None)


def _of_feature(name_value: Value, name: str, declared: type) -> Key:
    """Return a key that a feature adds; raise `InvalidError` if no feature adds it."""
    if (prefix := _feature_prefix(declared)) is not None:
        path = f"{prefix}{name}"
        if of_feature := find_entry("keys", path):
            return keys_of(of_feature)[name]
        if path in KEYS:
            raise name_value.problem(f"the key {clip_repr(name)} needs the feature {KEYS[path]}, which is missing")
    home = None if name_value.field else _home_of(name, declared)
    keys = all_keys_of(declared)
    meant = f", which belongs under '{home}:'" if home else did_you_mean(name, keys)
    raise name_value.problem(f"unknown key {clip_repr(name)}{meant or '; allowed: ' + ', '.join(keys)}")


def section_kind(declared: type) -> Kind:
    """Make the kind of a mapping whose keys a dataclass declares; with a field `on`, also true or false."""
    is_switch, allowed = hasattr(declared, "on"), _allowed(declared, keys_of(declared))

    def read(value: Value) -> Any:
        if is_switch and value.kind == "boolean":
            return declared(on=boolean_kind().read(value))
        data = read_keys(value, declared)
        for one in keys_of(declared).values():
            if one.default is MISSING and all(name.raw != one.name for name, _ in value.pairs(allowed)):
                raise value.refused(_allowed(declared, keys_of(declared)), f" without the key {one.name!r}")
            if one.default is MISSING:
                data.setdefault(one.attribute, "")  # the problem is noted already
        return declared(**data)

    def dump(data: Any) -> Any:
        return dump_keys(data) if not is_switch or data.on else False

    return Kind(allowed, read, {"type": ["boolean", "object"] if is_switch else "object"}, dump)


def _allowed(declared: type, keys: Mapping[str, Key]) -> str:
    switch = "true, false, or " if hasattr(declared, "on") else ""
    return f"{switch}a mapping with the key{'s' * (len(keys) > 1)} {', '.join(keys)}"


def read_keys(value: Value, declared: type) -> dict[str, Any]:
    """Read a mapping into values by attribute of the dataclass that declares its keys; leave out invalid ones.

    Keys are read in the order of their declaration, then the keys of features. The keys of the scenario itself are also
    noted in `Reading.known`, because later keys depend on them.
    """
    keys, added, values = keys_of(declared), dict[str, Key](), {}
    allowed = "" if value.kind == "mapping" else _allowed(declared, all_keys_of(declared))
    for name_value, key_value in value.pairs(allowed):
        with value.reading.attempt():
            if (name := name_value.as_key()) not in keys:
                added[name] = _of_feature(name_value, name, declared)
            values[name] = key_value
    data: dict[str, Any] = value.reading.known if not value.field else {}
    for key in keys.values():
        if key.name in values:
            with value.reading.attempt():
                data[key.attribute] = key.kind.read(values[key.name])
    for key in added.values():
        with value.reading.attempt():
            data.setdefault("extra", {})[key.name] = key.kind.read(values[key.name])
    return data


def read_all_keys(value: Value, declared: type) -> dict[str, Any] | None:
    """Read a mapping as `read_keys` does; return None if one of its keys is invalid."""
    data = read_keys(value, declared)
    return data if len(data) == len(value.pairs("")) else None


def mapping_schema(declared: type, **keywords: Any) -> dict[str, Any]:
    """Return the JSON Schema of a mapping that has the keys of a dataclass and no others."""
    properties = {name: dict(one.kind.schema) for name, one in keys_of(declared).items()}
    return {"type": "object", "additionalProperties": False, "properties": properties, **keywords}


def dump_keys(data: Any) -> dict[str, Any]:
    """Convert the data of a dataclass to keys and values as in a file, without those at their default."""
    values = [(key, getattr(data, key.attribute)) for key in keys_of(data.__class__).values()]
    if (prefix := _feature_prefix(data.__class__)) is not None:
        known = [*KEYS, *data.extra]  # in the order of the reference, not of the file
        names = sorted(data.extra, key=known.index)
        values += [(keys_of(find_entry("keys", f"{prefix}{name}"))[name], data.extra[name]) for name in names]
    return {key.name: key.kind.dump(value) for key, value in values if key.always or value != key.default}


def _home_of(name: str, declared: type) -> str | None:
    """Return the section that has a key of this name, such as `expect: tolerance`."""
    for key in all_keys_of(declared).values():
        if key.section is not None:
            if name in all_keys_of(key.section):
                return key.name
            if deeper := _home_of(name, key.section):
                return f"{key.name}: {deeper}"
    return None
