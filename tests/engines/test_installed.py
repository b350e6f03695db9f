"""The wheel in a virtual environment of its own, used by a repository of somebody else; no checkout is on the path."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
THEIRS = ROOT / "tests" / "third_party" / "ringlib"

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment with the wheel and pytest, and torch borrowed from here: it is not to be downloaded."""
    folder = tmp_path_factory.mktemp("installed")
    pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    venv.create(folder / "venv", with_pip=True, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    pip(str(python), "install", str(wheel), "pytest")
    (borrowed := folder / "borrowed").mkdir()
    for entry in entries_of("torch", "numpy"):
        if not (borrowed / entry.name).exists():
            (borrowed / entry.name).symlink_to(entry)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "borrowed.pth").write_text(f"{borrowed}\n")
    return folder / "venv"


@pytest.fixture
def repository(environment: Path, tmp_path: Path) -> Path:
    """A copy of ringlib, installed there as its README says."""
    folder = tmp_path / "ringlib"
    shutil.copytree(THEIRS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    pip(str(environment / "bin" / "python"), "install", "--no-deps", "--editable", str(folder))
    return folder


def pip(python: str, *words: str) -> None:
    call = [python, "-m", "pip", "--disable-pip-version-check", *words]
    done = subprocess.run(call, capture_output=True, text=True, timeout=300, env=without_checkout())
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def without_checkout() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}


def entries_of(*names: str) -> set[Path]:
    """What lies in site-packages of distributions and of all that they need."""
    found, waiting = dict[str, set[Path]](), list(names)
    while waiting:
        name = re.sub("[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        distribution = importlib.metadata.distribution(name)
        here = Path(str(distribution.locate_file("")))
        tops = {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}
        found[name] = {here / top for top in tops}
        needed = [Requirement(one) for one in distribution.requires or ()]
        waiting += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return set().union(*found.values())


def call(environment: Path, folder: Path, *words: str) -> str:
    """What a program of the environment says, called in a folder; it has to succeed."""
    path = f"{environment / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        words, cwd=folder, env={**without_checkout(), "PATH": path}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{words} ended with {done.returncode}\n{done.stdout[-6000:]}{done.stderr[-3000:]}"
    return done.stdout


def test_the_tests_of_another_repository_pass(engine: str, environment: Path, repository: Path) -> None:
    where = call(environment, repository, "python", "-c", "import lab; print(lab.__file__)")
    assert where.startswith(str(environment))

    said = call(environment, repository, "pytest", "--lab-engine", engine)
    passed = re.search(r"(\d+) passed", said)
    assert passed is not None, said
    assert int(passed[1]) == 10
    assert "1 passed" in call(environment, repository, "lab", "test", "demo.yaml", "--engine", engine)


def test_what_lab_init_writes_passes_as_it_is(engine: str, environment: Path, tmp_path: Path) -> None:
    call(environment, tmp_path, "lab", "init")
    assert "1 passed" in call(environment, tmp_path, "lab", "test", "scenarios", "--engine", engine)
    assert "2 passed" in call(environment, tmp_path, "pytest", "--lab-engine", engine)


def test_a_repository_with_a_package_lab_of_its_own_is_left_alone(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "__init__.py").write_text("OWN = True\n")
    (tmp_path / "test_it.py").write_text("import lab\n\n\ndef test_it(request):\n    assert lab.OWN\n")
    said = call(environment, tmp_path, "python", "-m", "pytest")
    assert "1 passed" in said
    assert "--lab-engine" not in call(environment, tmp_path, "python", "-m", "pytest", "--help")
