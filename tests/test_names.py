"""Names in lab/ say what a thing is, in the field's words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

LAB = Path(__file__).resolve().parent.parent / "lab"
# fmt: off
VAGUE = frozenset({
    "take", "takes", "taken", "give", "gives", "given", "gave", "let", "lets", "bring", "brings", "brought", "told",
    "tell", "tells", "said", "say", "says", "hear", "heard", "look", "looks", "looked", "see", "sees", "seen",
    "found", "deed", "deeds", "doing", "ground", "hands", "stray", "strays", "beside", "apart", "further", "more",
    "many", "several", "carried", "lent", "befell", "place", "places", "mark", "marks", "marked", "room", "odd",
    "wrong", "slip", "slips",
})
# fmt: on
"""Words that say nothing about what they name; CONTRIBUTING has the words to use."""
ONE_WORD = frozenset({"main", "run", "hooks", "learn", "distributed", "equal"})
"""Programs, verbs, what a feature declares, and the public API."""

PRESCRIBED = frozenset({"tell"})
"""Methods that the standard library calls."""


def names_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each function, class, argument, variable, and attribute that a module defines."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr
            case ast.alias(asname=str()):
                yield node.lineno, node.asname or ""
            case _:
                pass


def words_of(name: str) -> set[str]:
    """Return the words of a name in snake case or camel case."""
    return set(re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower()))


def test_names_have_no_vague_words() -> None:
    vague = [
        f"{path.relative_to(LAB.parent)}:{line}: {name}"
        for path in sorted(LAB.rglob("*.py"))
        for line, name in names_in(ast.parse(path.read_text()))
        if words_of(name) & VAGUE and name not in PRESCRIBED
    ]
    assert not vague


def test_a_public_function_is_named_by_a_verb_and_a_noun() -> None:
    short = [
        f"{path.relative_to(LAB.parent)}:{node.lineno}: {node.name}"
        for path in sorted(LAB.rglob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("_")
        and "_" not in node.name
        and node.name not in ONE_WORD
    ]
    assert not short
