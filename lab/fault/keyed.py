"""Values of kinds of faults with keys of their own: what the fault is done to, alone or in a mapping with more."""

from __future__ import annotations

from typing import Any

from lab.fault.when import said_well
from lab.keys.declare import dump_keys, keys_of, read_keys
from lab.keys.kinds import Kind
from lab.keys.value import Value


def alone_or_mapping(declared: type, name: str, what: str) -> Kind:
    """What one key of a dataclass says, or a mapping with all of its keys; only that one has to be said.

    Args:
        declared: the dataclass.
        name: of that key.
        what: it in words: `a rank`.
    """
    keys = keys_of(declared)
    main = keys[name].kind
    more = ", ".join(f"{key} ({one.kind.allowed})" for key, one in keys.items())
    allowed = f"{what}{f', or a mapping with the keys {more}' if len(keys) > 1 else ''}"

    def read(value: Value) -> Any:
        if value.kind != "mapping" or len(keys) == 1:
            return declared(**{name: main.read(value)})
        if name not in [key.raw for key, _ in value.pairs(allowed)]:
            raise value.refused(allowed, f" without {name}")
        said = read_keys(value, declared)
        if name not in said:  # what is wrong with it has been said
            return None
        return said_well(value, lambda: declared(**said))

    def dump(data: Any) -> Any:
        said = dump_keys(data)
        return said if len(said) > 1 else said[name]

    properties = {key: one.kind.schema for key, one in keys.items()}
    mapping = {"type": "object", "additionalProperties": False, "properties": properties, "required": [name]}
    return Kind(allowed, read, {"anyOf": [main.schema, mapping]} if len(keys) > 1 else main.schema, dump)
