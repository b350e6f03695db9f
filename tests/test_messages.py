"""The list of messages has exactly those of the source, and examples are what the source made."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = '''
def refuse(name):
    """No message."""
    where = f"on {name} there"
    raise LabError(f"{name} is {'very' if name else 'not'} busy {where}", "wait for it, or stop it")
'''


@pytest.fixture
def templates(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that finds messages."""
    monkeypatch.syspath_prepend(ROOT / "dev")
    return importlib.import_module("message_templates")


def test_a_module_records_each_message_with_its_value(templates: ModuleType) -> None:
    rewriter = templates.Rewriter("m.py", frozenset({"LabError"}))
    code = compile(rewriter.visit(ast.parse(SOURCE)), "m.py", "exec")
    assert [one.text for one in rewriter.templates] == [
        "on {name} there",
        "{name} is [very | not] busy {where}",
        "hint: wait for it, or stop it",
    ]
    assert {one[:3] for one in rewriter.templates} == {("error", "m.py", "refuse")}
    values = list[str]()
    made: dict[str, object] = {
        "LabError": ValueError,
        templates.RECORDER: lambda key, value: values.append(value) or value,
    }
    exec(code, made)
    with pytest.raises(ValueError, match="busy"):
        made["refuse"]("node1")  # type: ignore[operator]
    assert values == ["on node1 there", "node1 is very busy on node1 there", "wait for it, or stop it"]


def test_the_list_of_messages_has_exactly_those_of_the_source(templates: ModuleType) -> None:
    listed = {
        *importlib.import_module("list_messages").read_examples((ROOT / "docs" / "messages.txt").read_text("utf-8"))
    }
    found = {*templates.list_templates()}
    how = "run `dev/messages --static --write`"
    assert not found - listed, f"docs/messages.txt lacks these messages: {how}"
    assert not listed - found, f"docs/messages.txt has messages that no source has: {how}"
