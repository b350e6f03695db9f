"""Each of the processes that run tests imports all modules of tests, so none of them imports what takes long."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

from tests.conftest import SAMPLED
from tests.pytest_process import pytest_environment, pytest_words

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


CASES = """
import pytest

@pytest.mark.sample(3)
@pytest.mark.parametrize("number", range(20))
def test_case(number): pass

def test_other(): pass
"""


HALF = """
import pytest

pytestmark = pytest.mark.half

@pytest.mark.parametrize("number", range(9))
def test_case(number): pass

def test_other(): pass
"""


def collected(folder: Path, commit: str, *words: str) -> set[str]:
    """The tests that pytest collects in a folder, with the hooks of these tests."""
    argv = pytest_words("-p", "tests.conftest", "--collect-only", "-q", *words)
    environment = {**pytest_environment(), SAMPLED: commit}
    said = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout
    return {line.partition("::")[2] for line in said.splitlines() if "::" in line}


def test_of_a_sampled_test_each_commit_runs_other_cases_and_the_long_run_all(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(CASES)
    first, other = (collected(tmp_path, commit) for commit in ("3f2a", "b71c"))
    assert len(first) == len(other) == 4
    assert first != other
    assert "test_other" in first & other
    assert collected(tmp_path, "3f2a", "test_it.py::test_case[7]") == {"test_case[7]"}
    assert len(collected(tmp_path, "3f2a", "--long")) == 21


def test_of_a_file_marked_half_each_commit_runs_another_half_and_the_long_run_and_its_name_all(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(HALF)
    first, other = (collected(tmp_path, commit) for commit in ("3f2a", "b71c"))
    assert len(first) == len(other) == 5
    assert first != other
    assert len(collected(tmp_path, "3f2a", "test_it.py")) == len(collected(tmp_path, "3f2a", "--long")) == 10
