"""The JSON Schema and the reference of scenarios, from the declaration of their keys; the list of a record's files."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from itertools import pairwise
from pathlib import Path
from typing import Any

from lab.engine.select import engine_names
from lab.feature import all_entries, scenario_keys
from lab.features.faults.fault import Fault, When
from lab.features.faults.kinds import FaultKind, fault_kinds
from lab.features.faults.verbs import engine_cell
from lab.features.launchers.launchers import Torchrun
from lab.features.mpi.backends import NEEDS
from lab.features.strict_order.on_node.rules import ORDER, REJECTED
from lab.record.layout import FILES
from lab.spec.declare import Key, all_keys_of, keys_of
from lab.spec.expressions import FUNCTIONS, VARIABLES
from lab.spec.keys import LAB_PREFIXES, LAB_VARIABLES, SETTABLE
from lab.spec.launching import Lab
from lab.spec.load import schema_file
from lab.spec.scenario import Expect, Scenario
from lab.words import group_pairs

REQUIRED = "required"
LINKS = {
    "Questions": "#questions",
    "Faults": "#faults",
    "Expected notes": "#expected-notes",
    "Expected calls": "#expected-calls",
    "backends": "backends.md",
    "snapshots": "snapshots.md",
    "traces": "trace.md",
    "packages": "packages.md",
    "grading": "grading.md",
    "launchers": "launchers-reference.md",
    "networks": "network-reference.md",
    "strict order": "strict-order.md",
    "equal": "equal.md",
    "mutants": "mutants.md",
}
DOCS = Path(__file__).resolve().parent.parent / "docs"


def schema() -> str:
    """The JSON Schema."""
    whole = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Scenario",
        "description": inspect.getdoc(Scenario),
        "type": "object",
        "required": [key.name for key in keys_of(Scenario).values() if _default(key) == REQUIRED],
        **_properties(Scenario),
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def reference(page: str) -> str:
    """The reference of scenarios, with its tables and lists written anew."""
    parts = {
        "keys": "\n".join(_table(Scenario, skip=("expect",))),
        "keys of expect": "\n".join(_table(Expect)),
        "kinds of faults": "\n".join(_kinds_of_faults()),
        "keys of faults": "\n".join(_table(Fault)),
        "keys of when": "\n".join(_table(When)),
        "variables of the lab": f"**Variables that the lab sets itself**: {_words(LAB_VARIABLES)}, and all that begin "
        f"with {_words(LAB_PREFIXES, 'or')}, but for {_words(SETTABLE)}, which say how [traces](trace.md) are made, "
        "and what seed [`lab test`](ci.md) gives.",
        "arithmetic": f"- **Arithmetic**: a string that is a Python expression and uses at least one of "
        f"{_words(VARIABLES)}. Allowed are numbers, text, lists, comparisons, `if`/`else`, comprehensions, f-strings, "
        f"and {_words(FUNCTIONS)}. It is computed on the host by a safe evaluator, within bounds on time and size.",
    }
    return _with(page, parts)


def record(page: str) -> str:
    """The page on records, with the list of their files written anew."""
    rows = [f"| `{name}` | {what} |" for name, what in {**FILES, **all_entries("record_files")}.items()]
    return _with(page, {"files": "\n".join(["| file | what it is |", "|---|---|", *rows])})


def backends(page: str) -> str:
    """The page on backends, with the table of what they lack written anew."""
    rows = [
        f"| `{need.name}` | {need.what} | {', '.join(names)} | {why} |"
        for need in NEEDS.values()
        for why, names in group_pairs((why, backend) for backend, why in need.missing.items()).items()
    ]
    rows += [
        f"| `{need.name}` | {need.what} | gloo of torch before {need.torch} | gloo refuses it, or the result is wrong |"
        for need in NEEDS.values()
        if need.torch
    ]
    return _with(page, {"needs": "\n".join(["| need | what it is | not with | why |", "|---|---|---|---|", *rows])})


def ci(page: str) -> str:
    """The page on CI, with the files that `lab init` writes."""
    files = {path.stem: path.read_text(encoding="utf-8") for path in (DOCS / "ci").iterdir()}
    return _with(page, {name: f"```yaml\n{text}```" for name, text in files.items()})


def launchers(page: str) -> str:
    """The page on launchers, with what each can be told."""
    return _with(
        page, {f"keys of {name}": "\n".join(_table(told)) for name, told in (("lab", Lab), ("torchrun", Torchrun))}
    )


def _with(page: str, parts: Mapping[str, str]) -> str:
    """The page with everything between `<!-- NAME -->` and `<!-- end -->` replaced."""
    for name, text in parts.items():
        folded = (
            text
            if text.startswith(("|", "```"))
            else textwrap.fill(text, 120, subsequent_indent="  " * text.startswith("- "))
        )
        between = re.compile(f"(<!-- {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        page, count = between.subn(lambda ends, folded=folded: f"{ends[1]}{folded}{ends[2]}", page)
        assert count == 1, f"the page has {count} places for {name}"
    return page


def _properties(declared: type) -> dict[str, Any]:
    said = docstrings(declared)
    properties = {}
    for key in all_keys_of(declared).values():
        one: dict[str, Any] = {"description": _description(key, said[key.attribute]), **key.kind.schema}
        if key.section is not None:
            one |= _properties(key.section)
        elif key.default is not MISSING and not key.default_text:
            one["default"] = key.kind.dump(key.default)
        properties[key.name] = one
    return {"additionalProperties": False, "properties": properties}


def _description(key: Key, said: str) -> str:
    default = f" By default {key.default_text}." if key.default_text else ""
    return f"{said}{default} Allowed: {key.kind.allowed}."


def _table(declared: type, skip: tuple[str, ...] = ()) -> Iterator[str]:
    yield "| key | what it says | default | allowed | example |"
    yield "|---|---|---|---|---|"
    for path, key, said in _rows(declared, ()):
        if path[0] not in skip:
            example = key.example
            for section in reversed(path[:-1]):
                example = f"{section}: {{{example}}}"
            said = re.sub("(?<=see )[A-Za-z ]+", lambda page: f"[{page[0]}]({LINKS[page[0]]})", said)
            default, allowed = _default(key), _short(key.kind.allowed).partition(", such as ")[0]
            default = "" if default in ("none", "not checked") else default
            cells = [f"`{'.'.join(path)}`", said, default, allowed, f"`{example}`"]
            yield f"| {' | '.join(cells)} |"


def _kinds_of_faults() -> Iterator[str]:
    yield "| fault | allowed | example |"
    yield "|---|---|---|"
    for name, kind in fault_kinds().items():
        yield f"| `{name}` | {_short(kind.value().allowed)} | `{kind.example}` |"


def faults(page: str) -> str:
    """The page on faults, with what each engine can do."""
    rows = [f"| `{name}` | {kind.does} | {_engines(kind)} |" for name, kind in fault_kinds().items()]
    return _with(page, {"kinds by engine": "\n".join(["| fault | what it breaks | engines |", "|---|---|---|", *rows])})


def _engines(kind: type[FaultKind]) -> str:
    """The engines that support a fault, and whether only in runs."""
    cells = {engine: engine_cell(kind, engine) for engine in engine_names()}
    able = [engine for engine, cell in cells.items() if cell != "no"]
    names = "all" if len(able) == len(cells) else ", ".join(able)
    return f"{names}, in runs" if "in runs" in cells.values() else names


SHORT = {
    r"a duration such as [^;]*; more than 0 and at most \d+[hms]": "duration",
    r"a size such as .*?, or bytes; from \S+ to \w+": "size",
    r"a rate such as [^;]*; from \S+ to \w+": "rate",
    r"a share such as [^;]*; more than 0 and at most 100%": "share",
    r"words such as '[^']*'": "words",
    r"a node \(node2: all its packets\), one way \(.*?\), both ways \(.*?\), or all": "link",
    r"a list, each of it a mapping with `when` and one of .*": "a list of [faults](#faults)",
    r"a list of any of monitored barrier, .*": "a list of [needs](backends.md#what-a-backend-cannot-do)",
    r"the name of a node, such as node2": "node",
    r"a rank, 0 or more": "rank",
    r"a whole number from 0 to \d{7,}": "number",
    r"a whole number from (\d+) to (\d+)": r"\1 to \2",
    r"a mapping with the keys? ": "mapping: ",
    r"lan-1g, .*?, datacenter, or mapping: .*": "profile, or a mapping; see [networks](network-reference.md)",
    r"broadcast, all_reduce, .*, recv": "an operation, see [trace](trace.md#format)",
    r"start, or a mapping such as .*": "`start`, or a mapping with the keys of `when`",
}
"""What the kinds of values are called in tables, by what messages say of them; the page explains the short names."""


def _short(allowed: str) -> str:
    for long, name in SHORT.items():
        allowed = re.sub(long, name, allowed)
    return allowed


def _rows(declared: type, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Key, str]]:
    said = docstrings(declared)
    for key in all_keys_of(declared).values():
        path = (*above, key.name)
        if key.example:
            yield path, key, said[key.attribute]
        if key.section is not None:
            yield from _rows(key.section, path)


def _default(key: Key) -> str:
    if key.default_text:
        return key.default_text
    if key.default is MISSING:
        return REQUIRED
    if key.section is not None:
        return "`true`"
    default = key.kind.dump(key.default)
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def docstrings(declared: type) -> dict[str, str]:
    """What stands under each field of a dataclass, and of those of features that add keys to it, on one line."""
    more = scenario_keys().values() if all_keys_of(declared) != keys_of(declared) else ()
    return {field: text for one in (*more, declared) for field, text in _docstrings_in(one).items()}


def _docstrings_in(declared: type) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(declared))).body[0].body
    return {
        field.target.id: " ".join(under.value.value.split())
        for field, under in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(under, ast.Expr) and isinstance(under.value, ast.Constant)
    }


def _words(names: tuple[str, ...], last: str = "and") -> str:
    quoted = [f"`{name}`" for name in names]
    return f" {last} ".join(quoted) if len(quoted) < 3 else f"{', '.join(quoted[:-1])}, {last} {quoted[-1]}"


def strict_order(page: str) -> str:
    """The page on strict order, with its rules."""
    rows = [
        f"| {rule.about} | {f'{rule.does} | ' * bool(rule.does)}{rule.nccl} ([source]({rule.source})) |"
        for rule in (*ORDER, *REJECTED.values())
    ]
    parts = {
        "order": "\n".join(["| calls | rule | NCCL or PyTorch |", "|---|---|---|", *rows[: len(ORDER)]]),
        "rejected calls": "\n".join(["| calls | NCCL or PyTorch |", "|---|---|", *rows[len(ORDER) :]]),
    }
    return _with(page, parts)


PAGES = {
    "backends.md": backends,
    "scenario-reference.md": reference,
    "record.md": record,
    "ci-reference.md": ci,
    "launchers-reference.md": launchers,
    "faults-reference.md": faults,
    "strict-order.md": strict_order,
}
"""Those of which parts are made here."""

if __name__ == "__main__":
    from catalogue import catalogue  # which lies beside this file
    from feature_readmes import readmes

    (DOCS / "scenarios.md").write_text(catalogue(), encoding="utf-8")
    for name, made in PAGES.items():
        text = (DOCS / name).read_text(encoding="utf-8")
        (DOCS / name).write_text(made(text), encoding="utf-8")
    schema_file().write_text(schema(), encoding="utf-8")
    for path, text in readmes().items():
        path.write_text(text, encoding="utf-8")
