"""Facts that stand in two files say the same."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import yaml

from lab import DISTRIBUTION, __version__
from lab.engine.docker.image import DEFAULT_IMAGE
from lab.feature import bundled_path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]


def test_compose_uses_the_default_image_and_the_dockerfiles_base():
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    base = re.search(r"^ARG BASE=(\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert base is not None
    for node in compose["services"].values():
        assert node["image"] == f"${{LAB_IMAGE:-{DEFAULT_IMAGE}}}"
        assert node["build"]["args"]["BASE"] == f"${{LAB_IMAGE_BASE:-{base[1]}}}"


def test_the_image_and_the_constraints_hold_the_same_torch():
    in_image = set(re.findall(r"^ARG TORCH=(\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert in_image == set(re.findall(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))


def test_the_changelog_speaks_of_this_version():
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_ci_runs_the_python_of_the_nodes():
    base = re.search(r"^ARG BASE=\S*?python:(\d+\.\d+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert base is not None
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert action["inputs"]["python-version"]["default"] == base[1]
    assert f"image: python:{base[1]} " in (ROOT / "docs" / "ci" / "gitlab.yml").read_text()


def test_the_files_for_ci_name_this_version():
    said = {page.stem: page.read_text() for page in (ROOT / "docs" / "ci").iterdir()}
    assert f"uses: torch-lab/torch-lab@v{__version__}\n" in said["github"]
    assert f"'{DISTRIBUTION}[local,pytest]=={__version__}'" in said["gitlab"]
    assert f"# v{__version__}`" in (ROOT / "docs" / "ci.md").read_text()


def test_the_distribution_has_the_name_that_hints_give_it():
    project = (ROOT / "pyproject.toml").read_text()
    assert re.findall(r'^name = "(.+)"', project, re.MULTILINE)[0] == DISTRIBUTION
    for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/*.ipynb")):
        assert set(re.findall(r"([\w-]+)\[(?:local|pytest)\b", path.read_text())) <= {DISTRIBUTION}, path


def test_the_wheel_has_what_it_carries_where_an_installed_lab_looks_for_it():
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    places = {**packaged["sources"], **packaged["force-include"]}
    assert places == {name: f"lab/{name}" for name in ("scenarios", "docs", "mpi", "Dockerfile")}
    assert all(bundled_path(name) == ROOT / name for name in places)
