"""`pytest --lab` records the worlds of tests, shows verdicts of failed tests, and ends tests that stand still."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.polling import poll_until
from tests.golden import golden
from tests.pytest_process import pytest_environment, pytest_words
from tests.short import SHORT

if importlib.util.find_spec("torch") is None:  # to import it would cost every process that collects tests
    pytest.skip("needs torch", allow_module_level=True)

pytestmark = [pytest.mark.timeout(600), pytest.mark.half]  # on a busy machine, each import of torch takes half a minute

SUITE = """
import multiprocessing
import importlib.util
import os
import pathlib
import socket
import time

import pytest
import torch
import torch.distributed as dist

FORK = multiprocessing.get_context("fork")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def meet(rank, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)


def work(rank, port, mode):
    while mode == "absent" and rank == 1:
        time.sleep(0.06)
    meet(rank, port)
    if mode == "return" and rank == 1:
        return
    try:
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        if mode == "raise" and rank == 1:
            raise ValueError("bad batch")
        until = time.monotonic() + 3
        while mode == "compute" and time.monotonic() < until:
            pass
        while mode == "hang" and rank == 1:
            time.sleep(0.05)
        dist.all_reduce(tensor)
    finally:
        dist.destroy_process_group()


@pytest.fixture(autouse=True)
def leaves_no_files(request):
    before = {*pathlib.Path(".lab", "runs").glob("*")}
    yield
    if "fine" in request.node.name:
        assert {*pathlib.Path(".lab", "runs").glob("*")} <= before


def run_ranks(mode):
    port = free_port()
    ranks = [FORK.Process(target=work, args=(rank, port, mode)) for rank in range(2)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    assert [one.exitcode for one in ranks] == [0, 0]


@pytest.mark.parametrize("mode", ["fine", "raise", "compute", "hang", "absent", "fine again"])
def test_processes(mode):
    run_ranks(mode)


def test_asserts_after_its_ranks_ended_well():
    run_ranks("fine")
    assert 1 + 1 == 3


def test_the_test_itself_is_a_rank_and_waits_for_one_that_never_comes():
    meet(0, free_port())


@pytest.mark.parametrize("mode", ["raise", "hang"])
def test_spawned(mode):
    torch.multiprocessing.start_processes(work, (free_port(), mode), nprocs=2, start_method="fork")


def test_a_test_without_ranks_may_take_long():
    until = time.monotonic() + 3
    while time.monotonic() < until:
        pass


@pytest.fixture(scope="module")
def pool():
    with FORK.Pool(2) as pool:
        yield pool


@pytest.mark.parametrize("mode", ["fine", "raise", "fine again", "hang"])
def test_pool(pool, mode):
    port = free_port()
    pool.starmap(work, [(rank, port, mode) for rank in range(2)], chunksize=1)


def test_pool_returns():
    port = free_port()
    with FORK.Pool(2) as pool:
        pool.starmap(work, [(rank, port, "return") for rank in range(2)], chunksize=1)


def test_last():  # where the end of a broken pool may fail
    pass
"""


def place(code: str) -> str:
    return f"test_suite.py:{next(at for at, line in enumerate(SUITE.splitlines(), 1) if line.strip() == code)}"


RAISED = place('raise ValueError("bad batch")')
FIRST = f"test_suite.py:{int(place('tensor = torch.ones(2)').rpartition(':')[2]) + 1}"
SLEPT, WAITED = place("time.sleep(0.05)"), f"test_suite.py:{int(place('finally:').rpartition(':')[2]) - 1}"


@pytest.fixture(scope="module")
def session() -> Iterator[tuple[Path, str, dict[str, ET.Element]]]:
    """The folder of a session in which ranks fail and hang, its output, and its test cases in JUnit, by name."""
    with tempfile.TemporaryDirectory(dir=SHORT) as name:
        folder = Path(name)
        (folder / "test_suite.py").write_text(SUITE)
        (folder / "pytest.ini").write_text("[pytest]\n")
        words = pytest_words("--lab", "--lab-stall", "2s", "--junitxml", "out.xml", "-v")
        github = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(folder.parent), "CI": "true"}
        environment = {**pytest_environment(), "XDG_CACHE_HOME": str(folder), **github}
        ended = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
        yield folder, ended.stdout, {one.get("name", ""): one for one in ET.parse(folder / "out.xml").iter("testcase")}


def failure(cases: dict[str, ET.Element], name: str) -> str:
    return "".join(one.text or "" for one in cases[name].iter("failure"))


@pytest.mark.parametrize("kind", ["processes", "pool"])
def test_a_failed_test_shows_which_rank_raised_where(
    session: tuple[Path, str, dict[str, ET.Element]], kind: str
) -> None:
    shown = failure(session[2], f"test_{kind}[raise]")

    assert "lab: world of 2 ranks" in shown
    assert f"test_{kind}[raise]  rank 1 raised ValueError: bad batch at {RAISED}" in shown
    assert "def start_processes" not in failure(session[2], "test_spawned[raise]"), "PyTorch's frames are hidden"


def test_a_failed_test_whose_ranks_ended_well_says_so(session: tuple[Path, str, dict[str, ET.Element]]) -> None:
    shown = failure(session[2], "test_asserts_after_its_ranks_ended_well")
    assert golden(1) in shown
    assert "✔" not in shown


@pytest.mark.parametrize("kind", ["processes", "pool"])
def test_a_test_that_hangs_ends_and_shows_who_waited(
    session: tuple[Path, str, dict[str, ET.Element]], kind: str
) -> None:
    shown = failure(session[2], f"test_{kind}[hang]")

    assert f"rank 1 was at {SLEPT}; rank 0 waited in all_reduce at {WAITED}" in shown


def test_a_rank_that_waits_for_the_next_task_of_its_pool_has_ended(
    session: tuple[Path, str, dict[str, ET.Element]],
) -> None:
    shown = failure(session[2], "test_pool_returns")

    assert f"rank 1 never entered all_reduce #1; rank 0 waited in all_reduce at {FIRST}; rank 1 had ended" in shown


@pytest.mark.parametrize("name", ["test_spawned[hang]", "test_processes[hang]"])
def test_an_error_that_tells_no_cause_is_replaced_by_the_verdict(
    session: tuple[Path, str, dict[str, ET.Element]], name: str
) -> None:
    [element] = session[2][name].iter("failure")
    assert f"rank 1 was at {SLEPT}; rank 0 waited in all_reduce at {WAITED}" in element.get("message", "")
    [element] = session[2]["test_spawned[raise]"].iter("failure")
    assert f"rank 1 raised ValueError: bad batch at {RAISED}" in element.get("message", "")


@pytest.mark.parametrize(
    ("name", "verdict", "at"),
    [
        ("test_processes[raise]", "failed", RAISED),
        ("test_spawned[hang]", "hung", SLEPT),
        ("test_pool[hang]", "hung", SLEPT),
    ],
)
def test_each_failed_test_annotates_the_line_of_the_culprit_once(
    session: tuple[Path, str, dict[str, ET.Element]], name: str, verdict: str, at: str
) -> None:
    file, _, line = at.rpartition(":")
    where = f"file={session[0].name}/{file},line={line},title=lab%3A {verdict} in {name}::"

    assert session[1].count(f"\n::error {where}") == 1


def test_the_summary_of_pytest_begins_with_the_reason(session: tuple[Path, str, dict[str, ET.Element]]) -> None:
    assert f"FAILED test_suite.py::test_spawned[raise] - rank 1 raised ValueError: bad batch at {RAISED}" in session[1]


def test_the_session_continues_and_other_tests_pass(session: tuple[Path, str, dict[str, ET.Element]]) -> None:
    others = {name: case for name, case in session[2].items() if name != "test_last"}
    passed = {name for name, case in others.items() if not [*case.iter("failure"), *case.iter("error")]}

    assert passed == {
        "test_processes[fine]",
        "test_processes[compute]",
        "test_processes[fine again]",
        "test_pool[fine]",
        "test_pool[fine again]",
        "test_a_test_without_ranks_may_take_long",
    }, "a test may check that it left no files"


def test_a_test_that_is_a_rank_and_waits_in_torch_ends(session: tuple[Path, str, dict[str, ET.Element]]) -> None:
    shown = failure(session[2], "test_the_test_itself_is_a_rank_and_waits_for_one_that_never_comes")

    assert "rank 1 never joined the world of 2 ranks; rank 0 waited in init_process_group" in shown


def test_the_only_rank_that_never_joins_has_a_line(session: tuple[Path, str, dict[str, ET.Element]]) -> None:
    shown = failure(session[2], "test_processes[absent]")

    assert f"rank 1 never joined the world of 2 ranks and was at {place('time.sleep(0.06)')}; rank 0 waited in" in shown


def test_only_failed_tests_leave_records_which_junit_names(session: tuple[Path, str, dict[str, ET.Element]]) -> None:
    folder, _, cases = session
    named = {one.get("value") for case in cases.values() for one in case.iter("property")}

    assert named == {str(path) for path in (folder / ".lab" / "runs").iterdir()}
    assert len(named) == 10


ENDLESS = """
import test_suite

POOL = test_suite.FORK.Pool(2)


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if item.name == "test_pool[hang]"]


def pytest_sessionfinish():
    POOL.close()
    POOL.join()
"""


def test_a_session_whose_pool_lost_a_worker_ends(cache: Path) -> None:
    fixture = "with FORK.Pool(2) as pool:\n        yield pool"
    assert fixture in SUITE
    (cache / "test_suite.py").write_text(SUITE.replace(fixture, "import conftest\n    return conftest.POOL"))
    (cache / "conftest.py").write_text(ENDLESS)
    (cache / "pytest.ini").write_text("[pytest]\n")
    words = pytest_words("--lab", "--lab-stall", "1s")
    environment = {**pytest_environment(), "XDG_CACHE_HOME": str(cache)}
    ended = subprocess.run(words, cwd=cache, env=environment, capture_output=True, text=True)

    assert ended.returncode == 1
    assert "rank 0 waited in all_reduce" in ended.stdout
    assert "lab: the end of the session made no progress" in ended.stdout


@pytest.fixture
def cache() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=SHORT) as name:
        yield Path(name)


def test_a_session_that_cannot_write_records_says_so(cache: Path) -> None:
    (cache / "test_suite.py").write_text(SUITE)
    (cache / "pytest.ini").write_text("[pytest]\n")
    (cache / ".lab").touch()
    words = pytest_words("--lab", "-k", "test_spawned and raise")
    environment = {**pytest_environment(), "XDG_CACHE_HOME": str(cache)}

    ended = subprocess.run(words, cwd=cache, env=environment, capture_output=True, text=True)

    assert ended.returncode == 1
    assert ended.stdout.count("lab: recording of tests failed") == 1


def test_the_limit_is_a_duration(tmp_path: Path) -> None:
    words = pytest_words("--lab", "--lab-stall", "soon")
    ended = subprocess.run(words, cwd=tmp_path, env=pytest_environment(), capture_output=True, text=True)

    assert ended.returncode == 4
    assert "--lab-stall" in ended.stderr


def test_sigterm_ends_the_running_test_with_the_verdict_in_junit(cache: Path) -> None:
    (cache / "test_suite.py").write_text(SUITE)
    (cache / "pytest.ini").write_text("[pytest]\n")
    environment = {**pytest_environment(), "XDG_CACHE_HOME": str(cache)}
    words = pytest_words("--lab", "--junitxml", "out.xml", "-k", "processes and hang or last")
    session = subprocess.Popen(words, cwd=cache, env=environment, stdout=subprocess.PIPE, text=True)

    def count_calls() -> int:
        return sum(file.read_bytes().count(b'"op":"all_reduce"') for file in cache.rglob("trace/*.jsonl"))

    assert poll_until(count_calls, 60.0, enough=lambda calls: calls == 3), session.poll()
    session.terminate()
    said, _ = session.communicate(timeout=60)

    assert session.returncode == pytest.ExitCode.INTERRUPTED, said
    [case] = ET.parse(cache / "out.xml").iter("testcase")  # no test runs after it
    [element] = case.iter("failure")
    assert f"rank 1 was at {SLEPT}; rank 0 waited in all_reduce at {WAITED}" in element.get("message", "")


def test_xdist_shows_the_verdicts_and_the_annotations_of_its_workers(
    session: tuple[Path, str, dict[str, ET.Element]],
) -> None:
    pytest.importorskip("xdist")
    folder = session[0]
    words = pytest_words("--lab", "-p", "xdist.plugin", "-n", "1", "-k", "processes and (raise or fine)")
    github = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(folder)}
    environment = {**pytest_environment(), "XDG_CACHE_HOME": str(folder), **github}
    ended = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)

    assert "1 failed, 2 passed" in ended.stdout
    assert f"rank 1 raised ValueError: bad batch at {RAISED}" in ended.stdout
    file, _, line = RAISED.rpartition(":")
    assert (
        f"\n::error file={file},line={line},title=lab%3A failed in test_processes[raise]::rank 1 raised" in ended.stdout
    )
    assert os.listdir(folder / ".lab" / "runs")


UNREADABLE = """
import pathlib

import pytest


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    for _, record in report.user_properties:
        path = pathlib.Path(record, "result.json")
        path.unlink(missing_ok=True)
        path.symlink_to("/etc/hosts")
"""


SHARED_GROUP = """
import pytest
import torch
import torch.distributed as dist


@pytest.fixture(scope="session", autouse=True)
def group():
    dist.init_process_group("gloo")
    yield
    dist.destroy_process_group()


def test_fine():
    dist.all_reduce(torch.ones(2))


def test_raises():
    if dist.get_rank() == 1:
        raise ValueError("bad")
    dist.all_reduce(torch.ones(2))


def test_other():
    pass
"""


def test_processes_of_pytest_that_share_a_group_in_all_tests_end_each_one_that_hangs(cache: Path) -> None:
    (cache / "test_suite.py").write_text(SHARED_GROUP)
    (cache / "pytest.ini").write_text("[pytest]\n")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    words = [*launcher, "--tee", "3", *pytest_words("--lab", "--lab-stall", "4s")]
    environment = {**pytest_environment(), "XDG_CACHE_HOME": str(cache)}
    ended = subprocess.run(words, cwd=cache, env=environment, capture_output=True, text=True, timeout=300)

    of_rank_0 = [line for line in ended.stdout.splitlines() if "[default0]:" in line]
    assert any("1 failed, " in line for line in of_rank_0), ended.stdout  # torchrun may end it before the last test
    assert any("FAILED test_suite.py::test_raises" in line for line in of_rank_0)
    assert any("at test_suite.py:21; only rank 0 of 2 ranks" in line for line in of_rank_0)


AFTER_A_FAILURE = """
import torch
import torch.distributed as dist
from test_suite import FORK, free_port, meet


def fail(port):
    meet(1, port)
    raise ValueError("bad batch")


def test_first():
    port = free_port()
    other = FORK.Process(target=fail, args=(port,))
    other.start()
    meet(0, port)
    other.join()
    assert other.exitcode == 0


def test_next():
    dist.all_reduce(torch.ones(2))
"""


def test_a_test_whose_group_lost_a_rank_in_an_earlier_test_is_not_blamed(cache: Path) -> None:
    (cache / "test_suite.py").write_text(SUITE)
    (cache / "test_group.py").write_text(AFTER_A_FAILURE)
    (cache / "pytest.ini").write_text("[pytest]\n")
    words = pytest_words("--lab", "test_group.py")
    environment = {**pytest_environment(), "XDG_CACHE_HOME": str(cache)}
    ended = subprocess.run(words, cwd=cache, env=environment, capture_output=True, text=True)

    first, _, after = ended.stdout.partition("_ test_next _")
    assert "lab: world of 2 ranks --" in first
    assert "lab: world of 2 ranks that failed in an earlier test --" in after
    assert all(
        "failed  test_first  rank 1 raised ValueError: bad batch at test_group.py:9" in one for one in (first, after)
    )


def test_lab_record_leaves_the_report_to_pytest_which_an_unreadable_record_does_not_end(cache: Path) -> None:
    (cache / "test_suite.py").write_text(SUITE)
    (cache / "conftest.py").write_text(UNREADABLE)
    (cache / "pytest.ini").write_text("[pytest]\n")
    pytest_alone = pytest_words("--lab", "-k", "processes and (raise or fine)")
    words = [sys.executable, "-m", "lab.cli.main", "record", "--", *pytest_alone]
    github = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(cache), "XDG_CACHE_HOME": str(cache)}
    environment = {**pytest_environment(), **github}
    ended = subprocess.run(words, cwd=cache, env=environment, capture_output=True, text=True)

    assert "1 failed, 2 passed" in ended.stdout
    assert "lab record" not in ended.stderr
