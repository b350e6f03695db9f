from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.features.functions.pack import Packed, is_own, pack_module


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine" / "deeper").mkdir(parents=True)
    (tmp_path / "mine" / "__init__.py").write_text("raise SystemExit('it must not be imported here')\n")
    (tmp_path / "mine" / "deeper" / "code.py").write_text("ANSWER = 42\n")
    (tmp_path / "mine" / "data.json").write_text("{}")
    (tmp_path / "mine" / "large.bin").write_bytes(b"\0")
    (tmp_path / "alone.py").write_text("X = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_package_of_the_caller_is_lent_whole_and_not_imported(project: Path) -> None:
    packed = Packed(str(project))
    said = json.loads(pack_module("mine", packed))
    assert sorted(said["files"]) == ["mine/__init__.py", "mine/data.json", "mine/deeper/code.py"]
    assert said["own"]["mine/deeper/code.py"] == "mine/deeper/code.py"
    assert packed.shown["mine/deeper/code.py"] == str(project / "mine/deeper/code.py")


def test_a_single_file_is_lent(project: Path) -> None:
    assert json.loads(pack_module("alone", Packed(str(project))))["files"] == {"alone.py": "X = 1\n"}


@pytest.mark.parametrize(
    "name", ["torch", "yaml", "json", "os", "lab", "missing", "../etc/passwd", "", "a.b", "mine/x", "\0"]
)
def test_what_is_installed_or_no_module_is_not_lent(project: Path, name: str) -> None:
    assert json.loads(pack_module(name, Packed(str(project))))["files"] == {}


@pytest.mark.parametrize("name", ["pytest", "_pytest", "pluggy", "cloudpickle"])
def test_what_tests_need_is_lent(name: str) -> None:
    files = json.loads(pack_module(name, Packed("/")))["files"]
    assert files
    assert all(path.split("/")[0] == name or path == f"{name}.py" for path in files)


def test_python_and_packages_are_not_the_callers_own() -> None:
    assert is_own(__file__)
    assert not is_own(json.__file__)
    assert not is_own(pytest.__file__)


def test_what_another_python_has_installed_is_not_the_callers_own_nor_what_leads_there(tmp_path: Path) -> None:
    installed = tmp_path / "site-packages" / "big"
    installed.mkdir(parents=True)
    (installed / "__init__.py").touch()
    (tmp_path / "dist-packages").symlink_to(tmp_path)
    (tmp_path / "linked").symlink_to(installed)
    (tmp_path / "mine.py").touch()
    assert not is_own(str(installed / "__init__.py"))
    assert not is_own(str(tmp_path / "linked" / "__init__.py"))
    assert not is_own(str(tmp_path / "dist-packages" / "mine.py"))
    assert is_own(str(tmp_path / "mine.py"))


def test_neither_the_lab_nor_its_command_imports_what_calls_need() -> None:
    late = {"cloudpickle", "lab.features.functions.calling"}
    program = f"import sys, lab.cluster, lab.cli.main; print({late} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], timeout=60, capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
