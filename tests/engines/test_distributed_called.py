"""Functions that are marked as distributed, called by fixtures, threads, tests of unittest and other decorators."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.golden import golden
from tests.pytest_process import pytest_environment, pytest_words

CALLED_BY_OTHERS = """
import dataclasses
import functools
import os
import threading
import unittest

import pytest
from hypothesis import given, settings, strategies

import lab

class NeedsMore(Exception):
    def __init__(self, code, detail):
        super().__init__(code, detail)

@lab.distributed(nodes=2)
def after_rank(rank, value, world_size, *more):
    return rank, value, world_size, more

@lab.distributed(nodes=2)
def in_docker():
    return os.path.exists("/.dockerenv")

@pytest.fixture
def at_setup():
    return in_docker()

def test_in_fixture(at_setup):
    assert at_setup == in_docker()

def test_by_position():
    assert after_rank(3) == [(rank, 3, 2, ()) for rank in (0, 1)]
    assert after_rank(3, 4) == [(rank, 3, 2, (4,)) for rank in (0, 1)]

def test_threads():
    found = []
    threads = [threading.Thread(target=lambda: found.append(after_rank(0))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[(rank, 0, 2, ()) for rank in (0, 1)]] * 3

def as_it_is(function):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapped

@as_it_is
@lab.distributed(nodes=2)
def test_wrapped(rank):
    pass

@settings(max_examples=3, deadline=None, database=None)
@given(value=strategies.integers(0, 9))
@lab.distributed(nodes=2)
def test_property(rank, value):
    assert 0 <= value < 10

class CaseTest(unittest.TestCase):
    def setUp(self):
        self.addCleanup(threading.Lock().acquire)
        self.limit = 4

    @lab.distributed(nodes=2)
    def test_in_case(self, rank):
        with self.subTest("one"):
            self.assertEqual(self.limit, 4)

    @unittest.expectedFailure
    @lab.distributed(nodes=2)
    def test_expected(self, rank):
        self.assertEqual(self.limit, 4)

@lab.distributed(nodes=2)
def fails(rank):
    raise NeedsMore(3, "more")

def test_assertion_of_a_call(cluster):
    def compares():
        assert [1] == [2], "not so"

    with pytest.raises(AssertionError, match="not so"):
        cluster.call(compares)

def test_local_classes(cluster):
    class Wrong(Exception):
        pass

    @dataclasses.dataclass
    class Found:
        x: int

    def raises():
        raise Wrong

    assert cluster.call(lambda: Found(3)) == [Found(3)] * 3
    with pytest.raises(Wrong):
        cluster.call(raises)

def test_needs_more():
    with pytest.raises(NeedsMore, match=r"^ranks 0 and 1: \\(3, 'more'\\)"):
        fails()
"""


@pytest.mark.local_first
def test_functions_are_called_by_fixtures_threads_unittest_and_other_decorators(engine: str, tmp_path: Path) -> None:
    (tmp_path / "test_others.py").write_text(CALLED_BY_OTHERS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    argv = pytest_words(f"--lab-engine={engine}")
    ended = subprocess.run(argv, cwd=tmp_path, env=pytest_environment(), capture_output=True, text=True, timeout=170)
    assert "1 failed, 9 passed" in ended.stdout, ended.stdout + ended.stderr
    assert golden(1) in ended.stdout
