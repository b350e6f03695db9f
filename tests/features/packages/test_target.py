"""What a Python has, and whether that is all that a requirement asks for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lab.errors import ClusterError
from lab.features.packages.wheels import Package, Target, probe_text
from tests.features.packages.made import python_with
from tests.golden import golden


@pytest.fixture
def target() -> Target:
    found = python_with({"torch": "2.13.0+cpu", "numpy": "2.3.0"}, "image x")
    has = {**found.has, "web": Package("1.0", ["all"], ["numpy>=2; extra == 'all'", "tls; extra == 'safe'"])}
    return Target(**{**vars(found), "has": has})


@pytest.mark.parametrize(
    ("requirement", "met"),
    [
        ("torch", True),
        ("torch>=2.4", True),
        ("torch==2.13.0", True),
        ("torch<2", False),
        ("absent", False),
        ("absent; python_version < '3.9'", True),
        ("absent; python_version > '3.9'", False),
        ("web[all]", True),
        ("web[safe]", False),
        ("torch @ https://x/torch-1-py3-none-any.whl", False),
    ],
)
def test_a_requirement_is_met_by_what_is_there(target: Target, requirement: str, met: bool) -> None:
    assert target.meets(requirement) is met


def test_a_python_says_what_it_is() -> None:
    said = subprocess.run([sys.executable, "-c", probe_text()], check=True, capture_output=True, text=True).stdout
    target = Target.parse("this Python", f"a line of somebody else\n{said}")
    assert target.executable == sys.executable
    assert target.python == "{}.{}".format(*sys.version_info)
    assert target.platforms[-1].startswith("linux_")
    assert target.meets("pytest")
    assert not target.meets("pytest<1")


@pytest.mark.parametrize("said", ["", "no", "{}", "[]"])
def test_what_is_no_answer_is_told(said: str) -> None:
    with pytest.raises(ClusterError, match=golden(1)):
        Target.parse("image x", said)
