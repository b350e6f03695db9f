"""The wall: the kernel works without any feature, and each feature without those that it does not need."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from lab.feature import FINDINGS, IN_TREE, KEYS, LAUNCHERS, Feature, features
from tests.golden import golden

ROOT = Path(__file__).resolve().parent.parent
FEATURES = ROOT / "lab" / "features"
BY_NAME = {feature.name: feature for feature in features()}


def imported(path: Path) -> Iterator[str]:
    """What a file imports, in functions too, and for the type checker."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def feature_of(module: str) -> str:
    """The feature that a module is of; empty for the kernel."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["lab", "features"] and len(parts) > 2 else ""


def test_every_folder_is_a_feature_of_its_name() -> None:
    folders = {path.parent.name for path in FEATURES.glob("*/__init__.py")}
    assert folders == set(IN_TREE) == {*BY_NAME}


def test_the_kernel_imports_no_feature() -> None:
    found = {
        (name, module)
        for path in (ROOT / "lab").rglob("*.py")
        if FEATURES not in path.parents
        for name in [str(path.relative_to(ROOT))]
        for module in imported(path)
        if feature_of(module)
    }
    assert found == set()


@pytest.mark.parametrize("name", IN_TREE)
def test_a_feature_imports_only_what_it_says_it_needs(name: str) -> None:
    used = {feature_of(module) for path in (FEATURES / name).rglob("*.py") for module in imported(path)}
    assert used - {"", name} == set(BY_NAME[name].needs)


@pytest.mark.parametrize("name", IN_TREE)
def test_what_a_feature_names_is_there(name: str) -> None:
    from lab.feature import load

    feature = BY_NAME[name]
    named = (feature.options, feature.exports, feature.views, feature.keys, feature.engines, feature.findings)
    entries = [entry for entries in named for entry in entries.values()]
    for entry in [*entries, *(module for module, _ in feature.verbs.values())]:
        assert load(entry)


def test_the_tables_of_keys_launchers_and_findings_are_those_of_the_features() -> None:
    assert {key: name for name, feature in BY_NAME.items() for key in feature.keys} == KEYS
    assert {one: name for name, feature in BY_NAME.items() for one in feature.launchers} == LAUNCHERS
    assert {name for name, feature in BY_NAME.items() if feature.findings} == {*FINDINGS}


def test_a_feature_is_not_changed() -> None:
    with pytest.raises(AttributeError, match="verbs"):
        Feature(name="one").verbs = {}


@cache
def needed_by(name: str) -> frozenset[str]:
    """Those that are gone without a feature, and itself."""
    more = {other for other, feature in BY_NAME.items() if name in feature.needs}
    return frozenset({name}.union(*map(needed_by, more)))


def without(folder: Path, *names: str) -> dict[str, str]:
    """A copy of the lab without these features; the environment in which it is the lab."""
    shutil.copytree(ROOT / "lab", folder / "lab")  # with what Python compiled: times are copied too, so it is valid
    for name in names:
        shutil.rmtree(folder / "lab" / "features" / name)
    table = folder / "lab" / "feature.py"
    before, start, rest = table.read_text().partition("IN_TREE = (")
    listed, end, after = rest.partition("\n)")
    for name in names:
        listed = listed.replace(f'"{name}",', "")
    table.write_text(before + start + listed + end + after)
    for beside in ("scenarios", "docs", "Dockerfile", "mpi"):
        (folder / beside).symlink_to(ROOT / beside)
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def lab(environment: dict[str, str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Call the lab of a copy."""
    return subprocess.run(
        [sys.executable, "-m", "lab.cli.main", *words],
        cwd=folder, env=environment, timeout=120, capture_output=True, text=True,
    )  # fmt: skip


def scatter(folder: Path, *without: str) -> Path:
    """The scenario `scatter` without the keys of these features, beside its script."""
    said = yaml.safe_load((ROOT / "scenarios" / "scatter.yaml").read_text())
    shutil.copy(ROOT / "scenarios" / "scatter.py", folder)
    path = folder / "scatter.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in said.items() if KEYS.get(key) not in without}))
    return path


@pytest.mark.parametrize("name", IN_TREE)
def test_without_a_feature_everything_else_is_there(name: str, tmp_path: Path) -> None:
    environment = without(tmp_path, name)
    gone = needed_by(name)

    helped = lab(environment, tmp_path, "--help")
    assert helped.returncode == 0, helped.stderr
    for other, feature in BY_NAME.items():
        for verb in feature.verbs:
            assert bool(re.search(rf"^  {verb}  ", helped.stdout, re.MULTILINE)) == (other not in gone), verb
    for verb in BY_NAME[name].verbs:
        refused = lab(environment, tmp_path, verb)
        assert refused.returncode == 2
        assert golden(1, verb) in refused.stderr
    for key in BY_NAME[name].keys:
        *above, last = key.split(".")
        scenario = tmp_path / "scenario.yaml"
        scenario.write_text("script: scatter.py\n" + "".join(f"{one}:\n  " for one in above) + f"{last}: 1\n")
        refused = lab(environment, tmp_path, "validate", str(scenario))
        assert refused.returncode == 2
        assert golden(2, last, name) in refused.stdout
    valid = lab(environment, tmp_path, "validate", str(scatter(tmp_path, *gone)))
    assert valid.returncode == 0, valid.stdout


def test_without_any_feature_a_scenario_runs_on_the_local_engine(tmp_path: Path) -> None:
    environment = without(tmp_path, *IN_TREE)
    (tmp_path / "work").mkdir()

    done = lab(environment, tmp_path / "work", "run", str(scatter(tmp_path, *IN_TREE)), "--engine", "local")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    for verb in ("show", "explain", "logs", "runs", "status"):
        shown = lab(environment, tmp_path / "work", verb)
        assert shown.returncode == 0, (verb, shown.stderr)


def test_without_launchers_only_the_lab_itself_starts_workers(tmp_path: Path) -> None:
    environment = without(tmp_path, *needed_by("launchers"))
    scenario = scatter(tmp_path, *needed_by("launchers"))
    assert lab(environment, tmp_path, "validate", str(scenario)).returncode == 0

    scenario.write_text("script: scatter.py\nlauncher: {torchrun: {max_restarts: 1}}\n")
    refused = lab(environment, tmp_path, "validate", str(scenario))

    assert refused.returncode == 2
    assert golden(1) in refused.stdout


KERNEL_TESTS = ("cli", "diagnosis", "engine", "node", "plan", "record", "report", "run", "spec", "trace")
"""Folders of tests/ that need no feature, but for tests that are marked so."""


def test_the_kernels_tests_pass_without_any_feature(tmp_path: Path) -> None:
    environment = without(tmp_path, *IN_TREE)
    tests = tmp_path / "tests"
    tests.mkdir()
    for name in KERNEL_TESTS:
        shutil.copytree(ROOT / "tests" / name, tests / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*(ROOT / "tests").glob("*.py"), ROOT / "tests" / "golden.yaml", ROOT / "pyproject.toml"):
        if not path.name.startswith("test_"):
            shutil.copy(path, tmp_path / path.relative_to(ROOT))

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider",
         "-m", "unit and not (docker or features)", *(f"tests/{name}" for name in KERNEL_TESTS)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-9000:] + done.stderr[-2000:]
    assert re.search(r"\d{3,} passed", done.stdout)
