"""What pip says of a failure, as one sentence."""

from __future__ import annotations

import pytest

from lab.errors import ClusterUnfit
from lab.features.packages.pip_program import NO_PIP, REFUSED
from lab.features.packages.wheels import Target, pip_failed
from tests.features.packages.made import python_with


@pytest.fixture
def target() -> Target:
    return python_with({"torch": "2.13.0+cpu"}, "image mine:1")


CONFLICT = """\
ERROR: Cannot install accelerate and torchvision because these package versions have conflicting dependencies.

The conflict is caused by:
    torchvision 0.15.1 depends on torch==2.0.0
    accelerate 1.0 depends on torch>=1.10
    The user requested (constraint) torch===2.13.0+cpu

To fix this you could try to:
1. loosen the range of package versions you've specified
"""
UNREACHABLE = """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'New('<x>: [Errno 111] Connection refused')'
ERROR: Could not find a version that satisfies the requirement x (from versions: none)
ERROR: No matching distribution found for x
"""
ABSENT = """\
ERROR: Could not find a version that satisfies the requirement x==9 (from versions: 1.0, 1.1)
ERROR: No matching distribution found for x==9
"""


@pytest.mark.parametrize(
    ("said", "message", "hint"),
    [
        (
            CONFLICT,
            "the requirements contradict each other: torchvision 0.15.1 needs torch==2.0.0 and accelerate 1.0 needs "
            "torch>=1.10, and image mine:1 keeps its torch 2.13.0",
            "or use an image that has it",
        ),
        (ABSENT, "no wheel of x==9 fits image mine:1 (Python 3.11 on x86_64); there are 1.0, 1.1", "only wheels"),
        (UNREACHABLE, "pip cannot reach a package index for x: Connection refused", "PIP_INDEX_URL"),
        (f"Collecting x>=1\nERROR: {REFUSED}", f"cannot install x>=1: {REFUSED}", "pip wheel"),
        ("ERROR: [Errno 28] No space left on device", "cannot fetch packages: no space left", "XDG_CACHE_HOME"),
        (
            "one\nERROR: odd https://me:secret@host/x",
            "pip cannot fetch the packages: odd https://host/x",
            "PIP_INDEX_URL",
        ),
        (
            "ERROR: Exception:\nTraceback\nKeyError: 'a'\n",
            "pip cannot fetch the packages: KeyError: 'a'",
            "PIP_INDEX_URL",
        ),
        ("", "pip cannot fetch the packages: ", "PIP_INDEX_URL"),
    ],
)
def test_a_failure_of_pip_is_one_sentence(target: Target, said: str, message: str, hint: str) -> None:
    error = pip_failed(1, said.splitlines(), target)
    assert error.message.startswith(message)
    assert "\n" not in error.message
    assert hint in error.hint


def test_a_python_without_pip_is_named(target: Target) -> None:
    error = pip_failed(NO_PIP, [], target)
    assert isinstance(error, ClusterUnfit)
    assert "does not have" in error.message
    assert "ensurepip" in error.hint
