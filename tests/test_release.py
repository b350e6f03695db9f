"""What a release is checked for before it is tagged."""

from __future__ import annotations

import io
import runpy
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TRACKED = [
    "lab/__init__.py",
    "lab/py.typed",
    "scenarios/a.yaml",
    "docs/ci.md",
    "docs/ci/x.yml",
    "docs/a.png",
    "Dockerfile",
    "mpi/pyproject.toml",
    "mpi/torch_mpi/py.typed",
    "mpi/tests/test_a.py",
]
IN_WHEEL = {
    "lab/__init__.py",
    "lab/py.typed",
    "lab/scenarios/a.yaml",
    "lab/docs/ci.md",
    "lab/docs/ci/x.yml",
    "lab/Dockerfile",
    "lab/mpi/pyproject.toml",
    "lab/mpi/torch_mpi/py.typed",
    "torch_lab-1.dist-info/METADATA",
}
wrong_with = runpy.run_path(str(ROOT / "dev" / "check_release.py"))["wrong_with"]


def problems(folder: Path, in_wheel: Iterable[str], in_sdist: Iterable[str]) -> list[str]:
    with zipfile.ZipFile(folder / "a.whl", "w") as wheel:
        for name in in_wheel:
            wheel.writestr(name, "")
    with tarfile.open(folder / "a.tar.gz", "w:gz") as archive:
        for name in in_sdist:
            archive.addfile(tarfile.TarInfo(f"a-1/{name}"), io.BytesIO())
    return list(wrong_with(folder / "a.whl", folder / "a.tar.gz", [*TRACKED, "wheels/.keep", ".ci/run"]))


def test_what_holds_all_it_should_is_right(tmp_path: Path) -> None:
    assert problems(tmp_path, IN_WHEEL, [*TRACKED, "PKG-INFO"]) == []


@pytest.mark.parametrize(
    ("lacks", "has", "sources", "sentence"),
    [
        ("lab/Dockerfile", "lab/py.typed", TRACKED, "the wheel lacks lab/Dockerfile"),
        ("", "tests/x.py", TRACKED, "the wheel holds tests/x.py, which nothing needs there"),
        ("", "lab/py.typed", TRACKED[1:], "the sources lack lab/__init__.py"),
        ("", "lab/py.typed", [*TRACKED, "lab/__pycache__/a.pyc"], "a.tar.gz holds lab/__pycache__/a.pyc"),
    ],
)
def test_what_is_missing_or_too_much_is_named(
    lacks: str, has: str, sources: list[str], sentence: str, tmp_path: Path
) -> None:
    assert problems(tmp_path, (IN_WHEEL | {has}) - {lacks}, sources) == [sentence]
