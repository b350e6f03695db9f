"""The JSON Schema of a result, as `result.json` and `lab run --json` have it, from its dataclasses."""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from lab.diagnosis.finding import Finding, FindingKind, fields_of, keys_of
from lab.feature import feature_findings, list_features
from lab.record.result import RecordedFinding, Result

_PLAIN: Mapping[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": ["number", "string"]},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Path: {"type": "string"},
    Any: {},
    RecordedFinding: {"type": "object"},
}
"""Floats that JSON lacks are the strings `nan`, `inf` and `-inf`."""


def result_schema(docs_of: Callable[[Any], Mapping[str, str]]) -> str:
    """The schema as text; `docs_of` gives what the fields of a dataclass mean, by name."""
    made = _Schemas(docs_of)
    result = made.object_of(Result)
    result["properties"]["findings"]["items"] = made.finding()
    whole = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Result",
        **result,
        "definitions": dict(sorted(made.definitions.items())),
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


class _Schemas:
    """Makes the schemas of types; those of dataclasses are definitions."""

    def __init__(self, docs_of: Callable[[Any], Mapping[str, str]]) -> None:
        self.docs_of = docs_of
        self.definitions: dict[str, Any] = {}

    def finding(self) -> dict[str, Any]:
        """One of the findings that a verdict rests on."""
        kinds = [FindingKind, *feature_findings("kinds")]
        for name in {name for feature in list_features() for name in feature.findings}:
            [*feature_findings(name)]  # its modules have the facts of their kinds
        classes = [one for one in Finding.__subclasses__() if one.__module__.startswith("lab.")]
        common, hints, docs = fields_of(Finding)[1:], get_type_hints(Finding), self.docs_of(Finding)
        properties = {
            "kind": {"enum": [kind.value for ours in kinds for kind in ours]},
            "sentence": {"type": "string", "description": "The finding in words, for a person."},
            **{name: {"description": docs[name], **self.of(hints[name])} for name in common},
            "facts": {"anyOf": [self.of(one) for one in sorted(classes, key=lambda one: one.__name__)]},
        }
        return {
            "type": "object",
            "description": inspect.getdoc(Finding),
            "required": list(properties),
            "properties": properties,
        }

    def of(self, hint: Any) -> dict[str, Any]:
        """The schema of a type."""
        origin, given = get_origin(hint), get_args(hint)
        if hint in _PLAIN:
            return dict(_PLAIN[hint])
        if origin is Literal:
            return {"enum": [*given]}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(one) for one in given]}
        if origin is not None and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(given[1])}
        if origin is not None and issubclass(origin, Sequence):
            return {"type": "array", "items": self.of(given[0])}
        assert is_dataclass(hint), hint
        assert isinstance(hint, type)
        if hint.__name__ not in self.definitions:
            self.definitions[hint.__name__] = {}  # one that has itself as a field refers to itself
            self.definitions[hint.__name__] = self.object_of(hint)
        return {"$ref": f"#/definitions/{hint.__name__}"}

    def object_of(self, kind: type) -> dict[str, Any]:
        """The schema of a dataclass; what all findings have is no part of the facts of one kind."""
        hints, common = get_type_hints(kind), fields_of(Finding) if issubclass(kind, Finding) else []
        docs = self.docs_of(kind)
        properties = {}
        for name, key in keys_of(kind).items():
            if name not in common:
                said = {"description": docs[name]} if name in docs else {}
                properties[key] = {**said, **self.of(hints[name])}
        closed = {"additionalProperties": False} if issubclass(kind, Finding) else {}
        return {
            "type": "object",
            "description": inspect.getdoc(kind),
            "required": list(properties),
            "properties": properties,
            **closed,
        }


if __name__ == "__main__":
    from make_reference import DOCS, docstrings

    (DOCS / "result.schema.json").write_text(result_schema(docstrings), encoding="utf-8")
