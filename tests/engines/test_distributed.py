"""Functions that are marked as distributed, in a session of pytest of its own on each engine, and without pytest."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from lab.engine.select import open_engine
from lab.node.warm import PRELOAD
from tests.golden import golden
from tests.pytest_process import pytest_environment, pytest_words

pytestmark = pytest.mark.half

BODY = """(rank, world_size, given):
    found = {"sum": [1, 2, 3], "rank": 2}
    values = [0, 1, given]
    if rank == 2:
        assert found == {"sum": values, "rank": rank}, f"of {world_size}"
"""
TESTS = f"""
import os

import pytest
import torch
import torch.distributed as dist

import lab
from mine.sums import total

@pytest.fixture
def given():
    return 7

@pytest.fixture
def rank():
    return 2

@pytest.fixture
def world_size():
    return 3

def test_local{BODY}

@lab.distributed(nodes=3)
def test_on_ranks{BODY}

@pytest.mark.parametrize("factor", [2, 3])
@lab.distributed(nodes=3)
def test_each(factor, given, rank, world_size, group):
    from mine.sums import total

    assert total(rank * factor, group) == 3 * factor
    assert (given, world_size, dist.get_rank()) == (7, 3, rank)

class TestInClass:
    limit = 4

    @lab.distributed(nodes=3)
    def test_method(self, rank):
        assert self.limit == 4
        assert total(1) == 3

@lab.distributed(nodes=3)
def test_two_ways(rank):
    if rank:
        raise [KeyError, ValueError][rank - 1](f"from {{rank}}")

@lab.distributed(nodes=3)
def test_skipped(rank):
    pytest.skip("not now")

@lab.distributed(nodes=3)
def test_shares(rank, tmp_path):
    before = os.listdir(tmp_path)
    dist.barrier()
    (tmp_path / str(rank)).touch()
    dist.barrier()
    assert (before, sorted(os.listdir(tmp_path))) == ([], ["0", "1", "2"])

@lab.distributed(nodes=3, timeout_s=1)
def test_hangs(rank):
    if rank != 1:
        dist.barrier()

@lab.distributed(nodes=3)
def test_differs(rank):
    dist.all_reduce(torch.ones(3, dtype=torch.int64 if rank == 1 else torch.float32))

@lab.distributed(nodes=3)
def pids():
    return os.getpid()

def test_called_by_a_test():
    assert pids() == pids() and len(pids()) == 3
"""
SUMS = """
import torch
import torch.distributed as dist

def total(value, group=None):
    tensor = torch.tensor(value)
    dist.all_reduce(tensor, group=group)
    return tensor
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with tests and a package of their own."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    (tmp_path / "mine" / "sums.py").write_text(SUMS)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    return tmp_path


@pytest.mark.local_first
def test_tests_run_on_ranks_and_fail_as_pytest_shows_a_local_failure(engine: str, project: Path) -> None:
    argv = pytest_words("-rs", "--junitxml=junit.xml", f"--lab-engine={engine}")
    environment = {**pytest_environment(), "GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(project)}
    ended = subprocess.run(argv, cwd=project, env=environment, capture_output=True, text=True, timeout=170)
    assert "5 failed, 5 passed, 1 skipped" in ended.stdout, ended.stdout + ended.stderr
    raised = next(at for at, line in enumerate(TESTS.splitlines(), 1) if "raise [KeyError" in line)
    asserted = max(at for at, line in enumerate(TESTS.splitlines(), 1) if "assert found ==" in line)
    waited = next(at for at, line in enumerate(TESTS.splitlines(), 1) if "if rank != 1:" in line) + 1
    annotated = re.findall(r"^::error file=test_it.py,line=(\d+),", ended.stdout, re.MULTILINE)
    assert {str(asserted), str(raised), str(waited)} <= {*annotated}, annotated
    assert len(annotated) == len({*annotated})
    assert re.search(golden(1), ended.stdout), ended.stdout
    told = {
        str(case.get("name")): failure.text or ""
        for case in ET.parse(project / "junit.xml").iter("testcase")
        for failure in case.iter("failure")
    }
    local, on_ranks = (_failure(told[name]) for name in ("test_local", "test_on_ranks"))
    expected = [line.replace("AssertionError: of 3", "AssertionError: rank 2: of 3") for line in local]
    assert [line for line in on_ranks if "record: " not in line and "@lab" not in line] == expected
    assert re.search(golden(2), told["test_two_ways"])
    assert golden(3) in told["test_hangs"]
    assert "run of test_it" in told["test_hangs"], "the record has several tests, and the name of their file"
    shown = told["test_differs"].partition("\n---")[0]
    assert re.search(golden(4), shown), shown
    assert "distributed_c10d.py" not in shown, shown
    records = list((project / ".lab" / "runs").glob("*/result.json"))
    assert len(records) == 6, "one for each test that failed or was skipped, and one for what came after the last"


@pytest.mark.local_first
def test_the_debugger_shows_the_variables_of_a_rank(engine: str, project: Path) -> None:
    argv = pytest_words("-k", "on_ranks", "--pdb", f"--lab-engine={engine}")
    told = subprocess.run(
        argv, cwd=project, env=pytest_environment(), input="p values\nq\n", capture_output=True, text=True, timeout=170
    ).stdout
    assert "(Pdb) [0, 1, 7]" in told, told


def _failure(text: str) -> list[str]:
    """What pytest shows of a failure, without names and lines that differ."""
    text = text.partition("\n---")[0].replace("test_on_ranks", "test_local")
    return re.sub(r"^test_it.py:\d+", "test_it.py", text, flags=re.MULTILINE).rstrip().splitlines()


@pytest.mark.local_first
def test_without_pytest_a_call_makes_a_cluster_and_leaves_nothing(engine: str, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(
        f"import lab\n\n@lab.distributed(nodes=2, engine={engine!r})\ndef place(rank, world_size, more):\n"
        "    return rank, world_size, more\n\nprint(place(more='x'))\n"
    )
    argv = [sys.executable, "plain.py"]
    ended = subprocess.run(argv, cwd=tmp_path, env=pytest_environment(), capture_output=True, text=True, timeout=120)
    assert ended.stdout == "[(0, 2, 'x'), (1, 2, 'x')]\n", ended.stderr
    assert not [info for info in open_engine(engine).find() if tmp_path.name[:10] in info.name]


SUITES = Path(__file__).parents[2] / "bench" / "suites"


FAILS = """
import torch
import torch.distributed as dist
from lab.testing.cases import MultiProcessTestCase

class CaseTest(MultiProcessTestCase):
    world_size = 3

    def test_sums(self):
        store = dist.FileStore(self.file_name, self.world_size)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.world_size)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        self.assertEqual(tensor, torch.tensor([3.0]))

    test_sums_again = test_sums

    def test_fails(self):
        if self.rank == 1:
            self.assertEqual(torch.ones(1), torch.zeros(1))
"""


@pytest.mark.local_first
def test_tests_written_for_torchs_own_base_run_with_one_line_changed_and_one_that_fails_is_shown_with_its_line(
    engine: str, tmp_path: Path
) -> None:
    written = (SUITES / "gloo_torch.py").read_text()
    changed = written.replace("torch.testing._internal.common_distributed", "lab.testing.cases")
    assert sum(one != other for one, other in zip(written.splitlines(), changed.splitlines(), strict=True)) == 1
    (tmp_path / "test_fails.py").write_text(FAILS)
    (tmp_path / "test_gloo.py").write_text(changed)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    argv = pytest_words("-rs", f"--lab-engine={engine}")
    environment = {**pytest_environment(), PRELOAD: "torch.distributed.tensor"}  # else each rank of a test imports them
    ended = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=170)
    assert "1 failed, 12 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "\n>           self.assertEqual(torch.ones(1), torch.zeros(1))\n" in ended.stdout
    assert golden(1) in ended.stdout


@pytest.mark.long
@pytest.mark.local_first
def test_the_same_tests_written_for_the_lab_pass(engine: str, tmp_path: Path) -> None:
    (tmp_path / "test_ported.py").write_text((SUITES / "test_gloo_ported.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    argv = pytest_words(f"--lab-engine={engine}")
    ended = subprocess.run(argv, cwd=tmp_path, env=pytest_environment(), capture_output=True, text=True, timeout=170)
    assert "10 passed" in ended.stdout, ended.stdout + ended.stderr
