"""The file of sentences has those that tests ask for, and no others."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.golden import FILE, read_golden

TESTS = FILE.parent


def numbers_in(test: ast.AST) -> set[int]:
    """Numbers of the sentences that a test asks for."""
    calls = [node for node in ast.walk(test) if isinstance(node, ast.Call)]
    asked = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "golden"]
    return {number.value for number in asked if isinstance(number, ast.Constant) and isinstance(number.value, int)}


def sentences_asked_for(path: Path) -> dict[str, set[int]]:
    """Of each test in a file that asks for sentences: their numbers."""
    top = ast.parse(path.read_text(encoding="utf-8")).body
    tests = {node.name: node for node in top if isinstance(node, ast.FunctionDef)}
    for group in top:
        if isinstance(group, ast.ClassDef):
            methods = [node for node in group.body if isinstance(node, ast.FunctionDef)]
            tests |= {f"{group.name}.{node.name}": node for node in methods}
    return {name: numbers for name, test in tests.items() if (numbers := numbers_in(test))}


def test_the_file_has_the_sentences_that_tests_ask_for_and_no_others() -> None:
    asked = {str(path.relative_to(TESTS.parent)): sentences_asked_for(path) for path in TESTS.rglob("test_*.py")}
    there = {path: {name: set(one) for name, one in tests.items()} for path, tests in read_golden().items()}
    assert {path: tests for path, tests in asked.items() if tests} == there
