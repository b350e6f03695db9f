"""Values of kinds of faults with keys of their own: what the fault is done to, alone or in a mapping with more."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Any

from lab.features.faults.when import said_well
from lab.spec.declare import dump_keys, keys_of, read_keys
from lab.spec.kinds import Kind
from lab.spec.reading import Value


def alone_or_mapping(declared: type, name: str, what: str) -> Kind:
    """What one key of a dataclass says, where no other has to be said, or a mapping with all of its keys.

    Args:
        declared: the dataclass.
        name: of that key.
        what: it in words: `a rank`.
    """
    keys = keys_of(declared)
    main = keys[name].kind
    required = [key for key, one in keys.items() if one.default is MISSING]
    alone, mapping_of = required == [name], ", ".join(f"{key} ({one.kind.allowed})" for key, one in keys.items())
    in_words = [what] * alone + [f"a mapping with the keys {mapping_of}"] * (len(keys) > 1)
    allowed = ", or ".join(in_words)

    def read(value: Value) -> Any:
        if len(keys) == 1 or (alone and value.kind != "mapping"):
            return declared(**{name: main.read(value)})
        named = [key.raw for key, _ in value.pairs(allowed)]
        for key in required:
            if key not in named:
                raise value.refused(allowed, f" without {key}")
        said = read_keys(value, declared)
        if len(said) < len(named):  # what is wrong with one of them has been said
            return None
        return said_well(value, lambda: declared(**said))

    def dump(data: Any) -> Any:
        said = dump_keys(data)
        return said if len(said) > 1 else said[name]

    properties = {key: one.kind.schema for key, one in keys.items()}
    mapping = {"type": "object", "additionalProperties": False, "properties": properties, "required": required}
    schemas = [main.schema] * alone + [mapping] * (len(keys) > 1)
    return Kind(allowed, read, schemas[0] if len(schemas) == 1 else {"anyOf": schemas}, dump)
