"""The tutorial is worked through as a learner does: a kernel, cell by cell, on the local engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from lab import Cluster
from tests.golden import golden

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.ipynb"


def read() -> Any:
    return nbformat.read(TUTORIAL, as_version=4)


def test_the_tutorial_is_kept_without_outputs() -> None:
    notebook = read()
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.id for cell in code if cell.outputs or cell.execution_count is not None] == []
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


@pytest.mark.long
@pytest.mark.local
def test_the_tutorial_shows_what_it_says(person: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbclient import NotebookClient

    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable.lower()))
    notebook = read()

    try:
        NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    finally:
        Cluster(name="tutorial", engine="local").down()  # its last cell does that, if it comes so far

    shown = {cell.id: html_of(cell) for cell in notebook.cells if cell.cell_type == "code"}
    verdicts = {name: re.findall(r"[✔✘∞!] (passed|failed|hung|error)</b>", html) for name, html in shown.items()}
    assert {name: found for name, found in verdicts.items() if found} == {
        "scatter-run": ["passed"],
        "gather-run": ["failed"],
        "hang-run": ["hung"],
        "guess-run": ["failed"],
        "story-run": ["passed"],
    }
    assert "I hold 20.0" in shown["scatter-run"]
    assert "scatter #1" in shown["scatter-run"]
    assert "<b>rank 1 on node1</b>" in shown["gather-run"]
    assert "all_reduce" in shown["hang-run"]
    assert golden(1) in shown["guess-run"]


def html_of(cell: Any) -> str:
    return "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)
