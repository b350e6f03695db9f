"""Each of the processes that run tests imports all modules of tests, so none of them imports what takes long."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SLOW = {"torch", "lab.node.recorder.python_group"}
"""See `tests/late.py`."""
LIKELY = re.compile(r"^(from|import) .*(torch|python_group)", re.MULTILINE)
"""Of a script in a string, too."""


def imported(tree: ast.Module) -> set[str]:
    """What a module imports when it is imported itself."""
    found = {name.name for node in tree.body if isinstance(node, ast.Import) for name in node.names}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found | {name.partition(".")[0] for name in found}


def test_no_module_of_tests_imports_torch_before_a_test_uses_it() -> None:
    modules = [
        path
        for tests in (ROOT / "tests", ROOT / "mpi" / "tests")
        for path in (*tests.rglob("test_*.py"), *tests.rglob("conftest.py"))
        if "third_party" not in path.parts
    ]
    assert len(modules) > 300
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in modules}
    likely = {path: text for path, text in texts.items() if LIKELY.search(text)}
    assert likely
    assert {path: slow for path, text in likely.items() if (slow := imported(ast.parse(text)) & SLOW)} == {}
