"""Facts that stand in two files say the same."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from lab import __version__
from lab.engine.image.image import DEFAULT_IMAGE

ROOT = Path(__file__).resolve().parents[2]


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
