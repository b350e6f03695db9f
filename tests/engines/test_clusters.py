"""The shape of a cluster and what a run asks of it; which files a run takes along."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import Cluster, LabError, Result
from lab.spec.load import load_scenario
from lab.spec.volumes import Volume
from tests.engines.conftest import scenario_of

Run = Callable[..., Result]
MakeCluster = Callable[..., Cluster]
MIB = 2**20


@pytest.fixture(scope="module")
def host_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mounted")
    (folder / "from-the-host.txt").write_text("seen through the volume")
    return folder


@pytest.fixture
def shaped(make_cluster: MakeCluster, host_folder: Path) -> Cluster:
    """Two nodes with two processes each, an environment and volumes of their own."""
    writable = Volume(source=host_folder, target=str(host_folder))
    env = {"OF_THE_CLUSTER": "from lab up", "OMP_NUM_THREADS": "2"}
    return make_cluster(nodes=2, nproc_per_node=2, env=env, volumes=(writable,))


def written(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.py").write_text(text)
    return folder / "main.py"


# -- shape


def test_a_cluster_says_how_many_processes_a_node_gets_where_a_scenario_does_not(run: Run, shaped: Cluster) -> None:
    result = run("collectives.py", on=shaped)

    assert result.passed, result.reason
    assert len(result.ranks) == 4
    assert len(run("collectives.py", on=shaped, nproc_per_node=1).ranks) == 2


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

    assert {rank.log for rank in result.ranks} == {"seen through the volume\n"}
    written_there = sorted(host_folder.glob(f"{engine}-*"))
    assert [path.name for path in written_there] == [f"{engine}-{rank}.txt" for rank in range(4)]
    assert {path.stat().st_uid for path in written_there} == {os.getuid()}


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


def test_a_run_may_use_some_of_the_nodes(run: Run, cluster: Cluster) -> None:
    result = run("collectives.py", nodes=2)

    assert result.passed
    assert {rank.node for rank in result.ranks} == {"node0", "node1"}
    assert {rank.notes["group_world_size"] for rank in result.ranks} == {"2"}


@pytest.mark.local_first
def test_a_run_that_needs_more_nodes_than_there_are_is_refused_with_what_to_do(run: Run) -> None:
    with pytest.raises(LabError, match=r"collectives needs 6 nodes, cluster t-\w+ has 5") as refused:
        run("collectives.py", nodes=6)

    assert "lab up --nodes 6" in refused.value.hint


def test_up_of_the_same_shape_changes_nothing_and_of_another_says_what_differs(engine: str, cluster: Cluster) -> None:
    before = cluster.info()

    again, made = Cluster(name=cluster.name, engine=engine, nodes=5).up()  # type: ignore[arg-type]
    assert (made, again) == (False, before)
    with pytest.raises(LabError, match=r"is up in another shape.*nodes: 5, asked for 4"):
        Cluster(name=cluster.name, engine=engine, nodes=4).up()  # type: ignore[arg-type]


@pytest.mark.local_first
def test_a_run_on_a_cluster_that_is_not_as_asked_for_is_refused(engine: str, cluster: Cluster) -> None:
    with pytest.raises(LabError, match=r"is up in another shape.*env: \{\}, asked for \{'A': '1'\}"):
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


# -- what is run, and what is shipped


@pytest.mark.local_first
def test_a_plain_script_gets_its_arguments(run: Run, tmp_path: Path) -> None:
    script = written(tmp_path / "s", "import sys\nprint(sys.argv)")

    result = run(script, "--epochs", "3", "a b", "", "ä", nodes=1)

    assert result.ranks[0].log == "['main.py', '--epochs', '3', 'a b', '', 'ä']\n"


@pytest.mark.local_first
@pytest.mark.parametrize(
    "name", ["with spaces and ünicode ✓", "quotes ' and \" and $HOME", "-leading dash", "percent %s"]
)
@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
def test_the_folder_of_a_script_may_have_any_name(run: Run, tmp_path: Path, name: str, cold: bool) -> None:
    script = written(tmp_path / name, "import beside\nprint(beside.VALUE, open('dätä file.txt').read())")
    (tmp_path / name / "beside.py").write_text("VALUE = 'imported'")
    (tmp_path / name / "dätä file.txt").write_text("read")

    result = run(script, nodes=1, cold=cold)

    assert result.passed, result.reason + result.ranks[0].log
    assert result.ranks[0].log == "imported read\n"


@pytest.mark.local_first
def test_a_script_may_have_a_name_with_spaces(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "s" / "my träining script.py"
    path.parent.mkdir()
    path.write_text("raise ValueError('here')")

    result = run(path, nodes=1)

    assert result.reason == "rank 0 (node0) raised ValueError: here at my träining script.py:1"


@pytest.mark.local_first
def test_everything_below_the_folder_is_shipped_but_hidden_folders_and_caches(run: Run, tmp_path: Path) -> None:
    script = written(
        tmp_path / "s",
        "import os\nprint(sorted(os.path.join(at, name)[2:] for at, _, names in os.walk('.') for name in names))\n",
    )
    shipped = ["data.bin", "package/__init__.py", "package/deep/er/x.txt", ".env"]
    left = [
        ".git/config",
        ".venv/bin/python",
        "__pycache__/main.cpython-311.pyc",
        "package/__pycache__/x.pyc",
        "venv/a",
    ]
    for name in (*shipped, *left):
        (tmp_path / "s" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "s" / name).write_bytes(b"\0\xff")

    result = run(script, nodes=1)

    assert result.ranks[0].log == f"{sorted(['main.py', *shipped])}\n"


@pytest.mark.local_first
def test_a_link_beside_the_script_is_shipped_as_the_file_that_it_names(run: Run, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.txt").write_text("from elsewhere")
    script = written(tmp_path / "s", "print(open('link.txt').read())")
    (tmp_path / "s" / "link.txt").symlink_to(tmp_path / "elsewhere.txt")

    result = run(script, nodes=1)

    assert result.passed, result.reason
    assert result.ranks[0].log == "from elsewhere\n"


@pytest.mark.local_first
def test_a_link_to_a_folder_is_followed_unless_it_leads_back(run: Run, tmp_path: Path) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "tools.py").write_text("VALUE = 'common'")
    script = written(tmp_path / "s", "import os\nfrom common.tools import VALUE\nprint(VALUE, os.path.exists('loop'))")
    (tmp_path / "s" / "common").symlink_to("../common")
    (tmp_path / "s" / "loop").symlink_to(".")

    result = run(script, nodes=1)

    assert result.passed, result.reason
    assert result.ranks[0].log == "common False\n"


def test_files_keep_their_modes_and_contents(run: Run, tmp_path: Path) -> None:
    script = written(
        tmp_path / "s",
        "import hashlib, os, subprocess\n"
        "print(hashlib.sha256(open('data.bin', 'rb').read()).hexdigest())\n"
        "print(subprocess.check_output(['./tool.sh'], text=True).strip())\n",
    )
    data = bytes(range(256)) * 40_000  # 10 MB
    (tmp_path / "s" / "data.bin").write_bytes(data)
    (tmp_path / "s" / "tool.sh").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "s" / "tool.sh").chmod(0o755)

    result = run(script, nodes=2)

    import hashlib

    assert {rank.log for rank in result.ranks} == {f"{hashlib.sha256(data).hexdigest()}\nran\n"}


@pytest.mark.local_first
def test_more_than_64_mib_are_refused_with_the_largest_file_named_and_the_cluster_stays_usable(
    run: Run, tmp_path: Path
) -> None:
    script = written(tmp_path / "s", "pass")
    (tmp_path / "s" / "small.bin").write_bytes(b"x")
    for name, size in (("weights.bin", 60 * MIB), ("more.bin", 5 * MIB)):
        with (tmp_path / "s" / name).open("wb") as file:
            file.truncate(size)

    with pytest.raises(LabError) as refused:
        run(script, nodes=1)

    assert "weights.bin (62.9 MB)" in refused.value.message
    assert "volumes:" in refused.value.hint
    assert run("collectives.py", nodes=2).passed


@pytest.mark.local_first
def test_a_script_in_a_subfolder_of_its_scenario_runs_in_its_own_folder(
    run: Run, cluster: Cluster, tmp_path: Path
) -> None:
    written(tmp_path / "scenario" / "deep", "import os\nprint(sorted(os.listdir()))")
    (tmp_path / "scenario" / "deep.yaml").write_text("script: deep/main.py\nnodes: 1\n")

    result = cluster.run(load_scenario(tmp_path / "scenario" / "deep.yaml"), runs=tmp_path / "runs")

    assert result.ranks[0].log == "['main.py']\n"


# -- a cluster of its own


def test_a_run_without_a_cluster_makes_one_and_removes_it(engine: str, tmp_path: Path) -> None:
    script = written(tmp_path / "s", "import os\nprint(os.environ['WORLD_SIZE'])")
    cluster = Cluster(name=f"t-own-{os.getpid()}", engine=engine)  # type: ignore[arg-type]

    result = cluster.run(script, nodes=2, runs=tmp_path / "runs")

    assert result.passed, result.reason
    assert [rank.log for rank in result.ranks] == ["2\n", "2\n"]
    assert cluster.info() is None


@pytest.mark.local_first
def test_a_failed_run_without_a_cluster_removes_its_cluster_too(engine: str, tmp_path: Path) -> None:
    script = written(tmp_path / "s", "raise ValueError('bad')")
    cluster = Cluster(name=f"t-own-{os.getpid()}", engine=engine)  # type: ignore[arg-type]

    result = cluster.run(script, nodes=1, runs=tmp_path / "runs")

    assert result.verdict == "failed"
    assert cluster.info() is None
