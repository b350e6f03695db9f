"""The shape of a cluster, and what a run asks of it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import Cluster, LabError, Result
from lab.engine import doctor
from lab.errors import MachineLacks
from lab.run.lock import ClusterLock
from lab.spec.keys import Volume
from tests.engines.conftest import NODES, scenario_of, written
from tests.golden import golden

pytestmark = pytest.mark.half

Run = Callable[..., Result]
MakeCluster = Callable[..., Cluster]


@pytest.fixture(scope="module")
def host_folder() -> Iterator[Path]:
    """A folder that nodes may see at its own path: below /tmp, wherever other temporary files of tests are."""
    with tempfile.TemporaryDirectory(prefix="lab-test-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "from-the-host.txt").write_text("seen through the volume")
        yield folder


@pytest.fixture
def shaped(make_cluster: MakeCluster, host_folder: Path) -> Cluster:
    """Two nodes with two processes each, an environment and volumes of their own."""
    writable = Volume(source=host_folder, target=str(host_folder))
    env = {"OF_THE_CLUSTER": "from lab up", "OMP_NUM_THREADS": "2"}
    return make_cluster(nodes=2, nproc_per_node=2, env=env, volumes=(writable,))


# -- shape


def test_a_cluster_says_how_many_processes_a_node_gets_where_a_scenario_does_not(run: Run, shaped: Cluster) -> None:
    result = run("collectives.py", on=shaped)

    assert result.passed, result.reason
    assert len(result.ranks) == 4
    assert len(run("collectives.py", on=shaped, nproc_per_node=1).ranks) == 2


@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_nodes_without_gpus_of_their_own_are_refused_unless_the_environment_says_which_they_share(
    run: Run, make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(doctor, "_DEVICES", tmp_path)
    (tmp_path / "nvidia0").touch()
    lone = Cluster(name=f"t-gpu-{os.getpid()}", engine="local", nodes=2, gpus=1)
    with pytest.raises(MachineLacks, match=golden(1)):
        lone.up()
    assert lone.info() is None

    shared = make_cluster(nodes=2, gpus=1, env={"CUDA_VISIBLE_DEVICES": "0"})
    script = written(tmp_path / "s", "import os\nprint(os.environ['CUDA_VISIBLE_DEVICES'])")
    assert {rank.log for rank in run(script, on=shared).ranks} == {"0\n"}


@pytest.mark.local_first
def test_the_environment_of_the_cluster_reaches_every_worker_and_gives_way_to_that_of_the_scenario(
    run: Run, shaped: Cluster, tmp_path: Path
) -> None:
    script = written(tmp_path / "s", "import os\nprint(os.environ['OF_THE_CLUSTER'])")

    assert {rank.log for rank in run(script, on=shaped).ranks} == {"from lab up\n"}
    assert {rank.log for rank in run(script, on=shaped, env={"OF_THE_CLUSTER": "mine"}).ranks} == {"mine\n"}


@pytest.mark.local_first
def test_threads_that_the_cluster_asks_for_are_not_cut_down_for_several_processes_on_a_node(
    run: Run, shaped: Cluster, tmp_path: Path
) -> None:
    script = written(tmp_path / "s", "import os\nprint(os.environ['OMP_NUM_THREADS'])")

    assert {rank.log for rank in run(script, on=shaped).ranks} == {"2\n"}


def test_a_volume_shows_the_folder_of_the_host_in_every_node(
    run: Run, shaped: Cluster, engine: str, host_folder: Path, tmp_path: Path
) -> None:
    script = written(
        tmp_path / "s",
        "import os, pathlib, sys\n"
        "folder, engine = pathlib.Path(sys.argv[1]), sys.argv[2]\n"
        "print((folder / 'from-the-host.txt').read_text())\n"
        "(folder / f'{engine}-{os.environ[\"RANK\"]}.txt').write_text('x')\n",
    )

    result = run(script, host_folder, engine, on=shaped)

    assert {rank.log for rank in result.ranks} == {golden(1)}
    written_there = sorted(host_folder.glob(f"{engine}-*"))
    assert [path.name for path in written_there] == [f"{engine}-{rank}.txt" for rank in range(4)]
    owners = {path.stat().st_uid for path in written_there}
    if engine == "docker" and os.getuid() == 0:
        assert 0 not in owners
    else:
        assert owners == {os.getuid()}


@pytest.mark.docker
@pytest.mark.parametrize("engine", ["docker"], indirect=True)
@pytest.mark.skipif(os.getuid() != 0, reason="needs kernel rights to give a folder to somebody else")
def test_a_mounted_folder_is_used_as_whoever_calls_unless_that_is_root(
    run: Run, shaped: Cluster, host_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = host_folder / "private"
    private.mkdir(mode=0o700)
    os.chown(private, 12345, 12345)
    script = written(
        tmp_path / "s", "import os, sys\nopen(os.path.join(sys.argv[1], os.environ['RANK']), 'w').write('x')\n"
    )
    assert run(script, private, on=shaped).verdict == "failed"
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    monkeypatch.setattr(os, "getgid", lambda: 12345)

    result = run(script, private, on=shaped)

    assert result.passed, result.reason
    assert {path.stat().st_uid for path in private.iterdir()} == {12345}


def test_the_shared_folder_is_the_same_on_every_node(run: Run, tmp_path: Path) -> None:
    script = written(
        tmp_path / "s",
        "import os\n"
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "path = os.path.join(os.environ['LAB_SHARED'], 'message')\n"
        "if dist.get_rank() == 0:\n"
        "    open(path, 'w').write('for everybody')\n"
        "dist.barrier()\n"
        "print(open(path).read())\n"
        "dist.barrier()\n"
        "if dist.get_rank() == 0:\n"
        "    os.unlink(path)\n",
    )

    assert {rank.log for rank in run(script, nodes=3).ranks} == {"for everybody\n"}


@pytest.mark.local_first
def test_a_run_may_use_some_of_the_nodes(run: Run, cluster: Cluster) -> None:
    result = run("collectives.py", nodes=2)

    assert result.passed
    assert {rank.node for rank in result.ranks} == {"node0", "node1"}
    assert {rank.notes["group_world_size"] for rank in result.ranks} == {"2"}


@pytest.mark.local_first
def test_a_run_that_needs_more_nodes_than_there_are_is_refused_with_what_to_do(run: Run, cluster: Cluster) -> None:
    with pytest.raises(LabError, match=golden(1)) as refused:
        run("collectives.py", nodes=6)

    assert f"`lab up --name {cluster.name} --nodes 6`" in refused.value.hint


def test_up_of_the_same_shape_changes_nothing_and_of_another_says_what_differs(engine: str, cluster: Cluster) -> None:
    before = cluster.info()

    again, made = Cluster(name=cluster.name, engine=engine, nodes=NODES).up()  # type: ignore[arg-type]
    assert (made, again) == (False, before)
    with pytest.raises(LabError, match=golden(1)):
        Cluster(name=cluster.name, engine=engine, nodes=4).up()  # type: ignore[arg-type]


@pytest.mark.local_first
def test_a_run_on_a_cluster_that_is_not_as_asked_for_is_refused(engine: str, cluster: Cluster) -> None:
    with pytest.raises(LabError, match=golden(1)):
        Cluster(name=cluster.name, engine=engine, env={"A": "1"}).run(  # type: ignore[arg-type]
            scenario_of("collectives.py")
        )


def test_two_clusters_live_side_by_side(run: Run, cluster: Cluster, shaped: Cluster) -> None:
    on_one, on_other = run("collectives.py", nodes=2), run("collectives.py", on=shaped)

    assert (on_one.passed, on_other.passed) == (True, True)
    assert (on_one.cluster, on_other.cluster) == (cluster.name, shaped.name)
    infos = cluster.info(), shaped.info()
    addresses = [node.address for info in infos if info for node in info.nodes]
    assert len(set(addresses)) == len(addresses)


# -- a cluster of its own


@pytest.mark.usefixtures("torch_stub")
@pytest.mark.local_first
def test_a_failed_run_without_a_cluster_removes_its_cluster_too(engine: str, tmp_path: Path) -> None:
    script = written(tmp_path / "s", "raise ValueError('bad')")
    cluster = Cluster(name=f"t-own-{os.getpid()}", engine=engine)  # type: ignore[arg-type]

    result = cluster.run(script, nodes=1, runs=tmp_path / "runs")

    assert result.verdict == "failed"
    assert cluster.info() is None


def test_the_status_of_a_busy_cluster_asks_none_of_its_agents(
    cluster: Cluster, engine: str, lab: Callable[..., tuple[int, str, str]]
):
    """An agent of a container that is starting reads a question as a part of its own files."""

    def stored() -> object:
        return json.loads(lab("status", "--json", "--name", cluster.name)[1])[0]["stored_bytes"]

    assert isinstance(stored(), int)
    with ClusterLock(engine, cluster.name).held("a start"):
        assert stored() is None
