"""The wall: the kernel works without any feature, and each feature without those that it does not need."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
import yaml

from lab.feature import FINDINGS, IN_TREE, KEYS, LAUNCHERS, Feature, list_features
from tests.golden import golden

ROOT = Path(__file__).resolve().parent.parent
FEATURES = ROOT / "lab" / "features"
BY_NAME = {feature.name: feature for feature in list_features()}


def imported(path: Path) -> Iterator[str]:
    """What a file imports, in functions too, and for the type checker."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            home = [*parts[: len(parts) - node.level], node.module] if node.level else [node.module]
            yield from (".".join(filter(None, [*home, name.name])) for name in node.names)
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


@pytest.mark.sample(16)  # import contracts say the same of modules
@pytest.mark.parametrize("name", IN_TREE)
def test_a_feature_imports_only_what_it_says_it_needs(name: str) -> None:
    used = {feature_of(module) for path in (FEATURES / name).rglob("*.py") for module in imported(path)}
    assert used - {"", name} == set(BY_NAME[name].needs)


@pytest.mark.parametrize("name", IN_TREE)
def test_what_a_feature_names_is_there(name: str) -> None:
    from lab.feature import import_entry

    feature = BY_NAME[name]
    named = (feature.options, feature.exports, feature.views, feature.keys, feature.engines, feature.findings)
    entries = [entry for entries in named for entry in entries.values()]
    for entry in [*entries, *(module for module, *_ in feature.verbs.values())]:
        assert import_entry(entry)


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


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the lab, which tests take features out of in turn."""
    folder = tmp_path_factory.mktemp("copied")
    shutil.copytree(ROOT / "lab", folder / "lab")  # with what Python compiled: times are copied too, so it is valid
    for beside in ("scenarios", "docs", "Dockerfile", "mpi"):
        (folder / beside).symlink_to(ROOT / beside)
    return folder


@contextmanager
def without(folder: Path, *names: str) -> Iterator[dict[str, str]]:
    """Take features out of a copy of the lab for a while; yields the environment in which the copy is the lab."""
    features, removed, table = folder / "lab" / "features", folder / "removed", folder / "lab" / "feature.py"
    removed.mkdir()
    before, start, rest = (ROOT / "lab" / "feature.py").read_text().partition("IN_TREE = (")
    listed, end, after = rest.partition("\n)")
    for name in names:
        (features / name).rename(removed / name)
        listed = listed.replace(f'"{name}",', "")
    table.write_text(before + start + listed + end + after)
    try:
        yield {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    finally:
        for name in names:
            (removed / name).rename(features / name)
        removed.rmdir()


CALLS = """
import contextlib, io, json, sys
from lab.cli.main import main
ends = []
for words in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code or 0
    ends.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(ends))
"""


def calls(environment: dict[str, str], folder: Path, *commands: list[str]) -> list[tuple[int, str, str]]:
    """Call the lab of a copy several times in one process; returns exit code, output and errors of each call."""
    done = subprocess.run(
        [sys.executable, "-c", CALLS], input=json.dumps(commands),
        cwd=folder, env=environment, timeout=120, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ends = [(code, out, err) for code, out, err in json.loads(done.stdout)]
    assert len(ends) == len(commands)
    return ends


def scatter(folder: Path, *without: str) -> Path:
    """The scenario `scatter` without the keys of these features, beside its script."""
    said = yaml.safe_load((ROOT / "scenarios" / "scatter.yaml").read_text())
    shutil.copy(ROOT / "scenarios" / "scatter.py", folder)
    path = folder / "scatter.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in said.items() if KEYS.get(key) not in without}))
    return path


@pytest.mark.xdist_group("features")
@pytest.mark.sample(12)  # each is left out in the same way
@pytest.mark.parametrize("name", IN_TREE)
def test_without_a_feature_everything_else_is_there(name: str, copied: Path, tmp_path: Path) -> None:
    gone = needed_by(name)
    verbs, keys = [*BY_NAME[name].verbs], [*BY_NAME[name].keys]
    written = []
    for number, key in enumerate(keys):
        *above, last = key.split(".")
        scenario = tmp_path / f"scenario{number}.yaml"
        scenario.write_text("script: scatter.py\n" + "".join(f"{one}:\n  " for one in above) + f"{last}: 1\n")
        written.append(["validate", str(scenario)])
    asked = [["--help"], ["validate", str(scatter(tmp_path, *gone))], *([verb] for verb in verbs), *written]

    with without(copied, name) as environment:
        helped, valid, *refused = calls(environment, tmp_path, *asked)

    assert helped[0] == 0, helped
    for other, feature in BY_NAME.items():
        for verb in feature.verbs:
            assert bool(re.search(rf"^  [\w ]{{10}} {verb}  ", helped[1], re.MULTILINE)) == (other not in gone), verb
    assert valid[0] == 0, valid
    for verb, (code, _, err) in zip(verbs, refused[: len(verbs)], strict=True):
        assert code == 2
        assert golden(1, verb) in err
    for key, (code, out, _) in zip(keys, refused[len(verbs) :], strict=True):
        assert code == 2
        assert golden(2, key.split(".")[-1], name) in out


def test_without_any_feature_a_scenario_runs_on_the_local_engine(copied: Path, tmp_path: Path) -> None:
    run = ["run", str(scatter(tmp_path, *IN_TREE)), "--engine", "local"]
    verbs = ("show", "explain", "logs", "runs", "status")

    with without(copied, *IN_TREE) as environment:
        done, *shown = calls(environment, tmp_path, run, *([verb] for verb in verbs))

    assert done[0] == 0, done
    assert "passed" in done[1]
    assert [code for code, _, _ in shown] == [0] * len(verbs), shown


@pytest.mark.xdist_group("features")
def test_without_launchers_only_the_lab_itself_starts_workers(copied: Path, tmp_path: Path) -> None:
    valid = scatter(tmp_path, *needed_by("launchers"))
    other = tmp_path / "other.yaml"
    other.write_text("script: scatter.py\nlauncher: {torchrun: {max_restarts: 1}}\n")

    with without(copied, *needed_by("launchers")) as environment:
        accepted, refused = calls(environment, tmp_path, ["validate", str(valid)], ["validate", str(other)])

    assert accepted[0] == 0, accepted
    assert refused[0] == 2
    assert golden(1) in refused[1]


DAILY = ("cli", "plan", "report", "run")
KERNEL_TESTS = (*DAILY, "diagnosis", "engine", "node", "record", "spec", "trace")
"""Folders of tests/ that need no feature, but for tests that are marked so. Each day those whose code asks for most."""
ALIKE = (
    *("tests/diagnosis/test_patterns.py", "tests/engine/local/test_remove.py", "tests/trace/test_order.py"),
    *("tests/node/test_remove.py", "tests/node/test_statement.py", "tests/spec/test_document.py"),
)
"""What waits or computes for seconds, and asks nothing that a feature could answer: tried once, with all features."""


@pytest.mark.parametrize("folders", [DAILY, pytest.param(KERNEL_TESTS, marks=pytest.mark.long)], ids=["some", "all"])
def test_the_kernels_tests_pass_without_any_feature(copied: Path, folders: tuple[str, ...]) -> None:
    tests = copied / "tests"
    shutil.rmtree(tests, ignore_errors=True)
    tests.mkdir()
    for name in folders:
        shutil.copytree(ROOT / "tests" / name, tests / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*(ROOT / "tests").glob("*.py"), ROOT / "tests" / "golden.yaml", ROOT / "pyproject.toml"):
        if not path.name.startswith("test_"):
            shutil.copy(path, copied / path.relative_to(ROOT))

    with without(copied, *IN_TREE) as environment:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--assert=plain",
             "-m", "unit and not (docker or features)", *(f"tests/{name}" for name in folders),
             *(f"--ignore={name}" for name in ALIKE)],
            cwd=copied, env=environment, capture_output=True, text=True, timeout=280,
        )  # fmt: skip

    assert done.returncode == 0, done.stdout[-9000:] + done.stderr[-2000:]
    assert re.search(r"\d{3,} passed", done.stdout)
