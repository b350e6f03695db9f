"""Functions that are marked as distributed, in a session of pytest whose engine does not answer."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from lab.errors import UsageError
from lab.features.functions.distributed import Provided, call_on_ranks, provide_clusters
from lab.features.functions.pack import CallOptions
from lab.features.pytest.items import MARKER, checked_shape
from tests.golden import golden
from tests.pytest_process import pytest_environment, pytest_words

TESTS = """
import unittest

import pytest

import lab

@lab.distributed(nodes=2)
def helper():
    pass

@pytest.fixture
def at_setup():
    helper()

@pytest.fixture
def at_teardown():
    yield
    helper()

@lab.distributed(nodes=2)
def test_first(rank):
    pass

test_again = test_first

def test_by_helper():
    helper()

def test_setup(at_setup):
    pass

def test_teardown(at_teardown):
    pass

class CaseTest(unittest.TestCase):
    @lab.distributed(nodes=2)
    def test_in_case(self):
        pass

    def test_helper_in_case(self):
        helper()

    def test_no_script(self):
        lab.Cluster(nodes=2, engine="local").run("gone.py")
"""


def test_an_error_of_the_lab_is_a_sentence_below_the_line_of_the_test_wherever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    words = pytest_words("--junitxml=junit.xml", "--lab-engine=docker", "--tb=short")
    environment = {**pytest_environment(), "DOCKER_HOST": f"unix://{tmp_path}/no.sock"}
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert "6 failed, 1 passed, 2 errors" in ended.stdout, ended.stdout + ended.stderr
    for case in ET.parse(tmp_path / "junit.xml").iter("testcase"):
        told = "".join(part.text or "" for part in case)
        assert golden(1) in told or "no such script" in told or case.get("name") == "test_teardown"
        assert {line.partition(":")[0] for line in told.splitlines() if line[:1].strip("E ")} == {"test_it.py"}, told


def test_a_misspelled_keyword_is_compared_with_those_of_the_decorator_too() -> None:
    with pytest.raises(UsageError) as caught:
        checked_shape({"timeout": 5}, "@lab.distributed")
    assert "did you mean 'timeout_s'" in str(caught.value)
    with pytest.raises(UsageError) as caught:
        checked_shape({"timeout": 5}, MARKER)
    assert "timeout_s" not in str(caught.value), "the marker does not take it"


def test_ranks_that_return_nothing_return_no_list_because_a_test_must_return_nothing() -> None:
    values: list[object] = [None, None]

    class Ranks:
        def call_as(self, function: object, arguments: object, named: object, how: CallOptions) -> list[object]:
            return values

    def test_it() -> None:
        pass

    with provide_clusters(Provided(cluster=lambda _: Ranks(), how=CallOptions())):  # type: ignore[arg-type, return-value]
        assert call_on_ranks(test_it, (), {}, {}, CallOptions(), shown=test_it) is None
        values[1] = 0
        assert call_on_ranks(test_it, (), {}, {}, CallOptions(), shown=test_it) == [None, 0]
