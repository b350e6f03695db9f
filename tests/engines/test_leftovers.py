"""Whatever a script leaves behind is gone when its run is over."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab import Cluster, Result
from lab.plan.cluster import Node
from tests.engines.conftest import Traces

Run = Callable[..., Result]
Alive = Callable[[Node, int], bool]


def local_first(*values: str) -> list[Any]:
    """Values of a parameter that other engines have in the long run only."""
    return [pytest.param(value, marks=pytest.mark.local_first) for value in values]


pytestmark = pytest.mark.usefixtures("usable_for_the_next", "nothing_left")


@pytest.mark.parametrize(
    "what", ["forks", "daemons", "port", *local_first("children", "talkative_children", "stopped_children")]
)
@pytest.mark.parametrize("cold", [False, pytest.param(True, marks=pytest.mark.long)], ids=["warm", "cold"])
def test_processes_that_outlive_their_worker_are_ended(
    run: Run, cluster: Cluster, alive: Alive, what: str, cold: bool
) -> None:
    result = run("leftovers.py", what, nodes=2, cold=cold)

    assert result.passed, result.reason
    info = cluster.info()
    assert info is not None
    for rank in result.ranks:
        assert rank.notes["pids"]
        assert [pid for pid in rank.notes["pids"] if alive(info.nodes[rank.rank], pid)] == []


def test_a_port_that_a_child_kept_open_is_free_again(run: Run, cluster: Cluster) -> None:
    result = run("leftovers.py", "port", nodes=1)

    info = cluster.info()
    assert info is not None
    address = info.nodes[0].address if info.engine == "docker" else "127.0.0.1"
    with pytest.raises(ConnectionRefusedError), socket.create_connection((address, result.ranks[0].notes["port"]), 5):
        pass


def test_files_in_the_working_folder_and_the_temporary_folder_are_gone(run: Run, engine: str) -> None:
    result = run("leftovers.py", "files", nodes=2)

    assert result.passed, result.reason
    if engine == "local":
        paths = [Path(path) for rank in result.ranks for path in rank.notes["paths"]]
        assert len(set(paths)) == 4, "every node has folders of its own"
        assert not any(path.exists() for path in paths)


@pytest.mark.docker
@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_files_anywhere_in_a_container_are_gone(run: Run) -> None:
    assert run("leftovers.py", "files", "everywhere", nodes=2).passed


@pytest.mark.parametrize(
    "way", ["kills_itself", "raises_while_a_child_holds_its_output", *local_first("raises", "segfaults")]
)
def test_nothing_is_left_of_a_run_that_failed(run: Run, way: str) -> None:
    assert run("fail.py", way, 1).verdict == "failed"


def test_nothing_is_left_of_a_run_that_hung(hang: Run) -> None:
    assert hang("hang.py", "rank_1_never_comes").verdict == "hung"


@pytest.mark.local_first
@pytest.mark.parametrize("way", ["removes_its_own_folder", "leaves_a_daemon_thread_running", "changes_folder"])
def test_nothing_is_left_of_a_run_with_bad_manners(run: Run, way: str) -> None:
    assert run("manners.py", way).passed


def test_a_run_that_is_over_does_not_take_the_shared_folder_with_it(run: Run, tmp_path: Path) -> None:
    name = f"kept-{os.getpid()}"
    (tmp_path / "keep.py").write_text(f"import os\nopen(os.path.join(os.environ['LAB_SHARED'], {name!r}), 'a').close()")
    (tmp_path / "look.py").write_text(
        "import os\n"
        f"path = os.path.join(os.environ['LAB_SHARED'], {name!r})\n"
        "assert os.path.exists(path)\n"
        "os.unlink(path)\n"
    )

    assert run(tmp_path / "keep.py", nodes=1).passed
    result = run(tmp_path / "look.py", nodes=1)

    assert result.passed, result.reason


@pytest.mark.long
def test_of_thousands_of_processes_none_is_left_when_the_run_returns(
    run: Run, make_cluster: Callable[..., Cluster], traces: Callable[[Cluster, Node], Traces]
) -> None:
    large = make_cluster(nodes=2, processes=4000)
    info = large.info()
    assert info is not None
    before = [traces(large, node) for node in info.nodes]
    result = run("leftovers.py", "many", on=large, timeout_s=150.0)

    assert [traces(large, node) for node in info.nodes] == before
    assert result.passed, result.reason
    assert run("collectives.py", on=large).passed
