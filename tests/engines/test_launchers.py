"""Workers that torchrun's own agents start: what they are given, what is on record, and who cannot pass for one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import Cluster, LabError, Result
from lab.cli.main import main
from lab.record.layout import LOGS
from lab.spec.launching import Launching
from tests.engines.conftest import SCRIPTS, Run, trace_of, written
from tests.golden import golden

pytestmark = [pytest.mark.timeout(120), pytest.mark.half]
BY_TORCHRUN = Launching("torchrun")
DIFFER = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE")
"""Variables of torchrun's that are others in each run."""


def check_launched(result: Result, nodes: int, processes: int) -> None:
    size = nodes * processes
    assert len(result.ranks) == size
    assert result.passed, result.reason
    for rank in result.ranks:
        variables: dict[str, Any] = rank.notes["variables"]
        assert rank.notes["total"] == [sum(range(size))] * 2
        assert rank.notes["argv"] == ["launched.py", "--lr", "0.10"]
        assert variables["RANK"] == str(rank.rank)
        assert variables["LOCAL_RANK"] == str(rank.rank % processes)
        assert variables["WORLD_SIZE"] == str(size)
        assert variables["TORCHELASTIC_MAX_RESTARTS"] == "0"
        assert rank.node == f"node{rank.rank // processes}"
        assert [call.op for call in trace_of(result).ranks[rank.rank].calls] == ["all_reduce"]
    assert result.path is not None
    logs = sorted(path.name for path in (result.path / LOGS).glob("launcher-*"))
    assert logs == [] or logs[0].startswith("launcher-node")


@pytest.mark.parametrize(
    ("engine", "nodes", "processes"),
    [
        pytest.param("local", 1, 2, marks=pytest.mark.long),
        pytest.param("docker", 2, 1, marks=pytest.mark.docker),
        pytest.param("local", 2, 2, marks=pytest.mark.long),
        pytest.param("docker", 2, 2, marks=[pytest.mark.docker, pytest.mark.long]),
    ],
    indirect=["engine"],
)
def test_workers_that_torchrun_starts_are_workers_of_the_lab_and_no_rank_can_pass_for_another(
    run: Run, nodes: int, processes: int
) -> None:
    result = run("launched.py", "--lr", "0.10", launcher=BY_TORCHRUN, nodes=nodes, nproc_per_node=processes)
    check_launched(result, nodes, processes)


@pytest.mark.long
def test_in_fresh_interpreters_as_well(run: Run) -> None:
    result = run("launched.py", "--lr", "0.10", launcher=BY_TORCHRUN, nodes=2, cold=True)
    check_launched(result, 2, 1)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_a_script_sees_what_it_sees_under_a_torchrun_of_its_own(run: Run) -> None:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "localhost:0",
    ]
    ended = subprocess.run(
        [*command, "--nproc-per-node", "2", str(SCRIPTS / "launched.py")],
        env={
            **os.environ,
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.getcwd(),
        },
        capture_output=True,
        text=True,
        timeout=100,
    )
    lines = [line.partition("variables ")[2] for line in ended.stdout.splitlines() if line.startswith("variables ")]
    bare = {int(variables["RANK"]): variables for variables in map(json.loads, lines)}
    assert sorted(bare) == [0, 1], ended.stderr
    result = run("launched.py", launcher=BY_TORCHRUN, nodes=1, nproc_per_node=2)
    for rank in result.ranks:
        mine: dict[str, str] = rank.notes["variables"]
        theirs = {name: value for name, value in bare[rank.rank].items() if name not in os.environ}
        assert theirs.keys() - {"PYTHONPATH"} <= mine.keys()
        assert {name: mine[name] for name in theirs if name not in (*DIFFER, "PYTHONPATH")} == {
            name: value for name, value in theirs.items() if name not in (*DIFFER, "PYTHONPATH")
        }


@pytest.mark.parametrize("engine", ["local"], indirect=True)
def test_what_cannot_be_launched_is_refused_before_anything_starts(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(LabError, match=golden(1)):
        cluster.run(SCRIPTS / "launched.py", launcher="torchrun", interactive=0, runs=tmp_path)
    with pytest.raises(LabError, match=golden(2)):
        cluster.run(SCRIPTS / "launched.py", launcher="torchrum", runs=tmp_path)


EXACT = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group()
total = torch.ones(1)
dist.all_reduce(total)
print(dist.get_rank(), total.item(), sys.argv[1:], os.environ["COLOR"], flush=True)
dist.destroy_process_group()
"""


@pytest.mark.timeout(180)
def test_the_pods_of_an_exported_trainjob_run_the_script_as_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    script = written(tmp_path, EXACT)
    (tmp_path / "job.yaml").write_text(
        "script: main.py\nnodes: 2\nnproc_per_node: 2\ntimeout: 2m\n"
        "args: ['$$ $(HOME)', 'x y']\nenv: {COLOR: '$(HOME) red'}\n"
    )
    assert main(["export", "trainjob", str(tmp_path / "job.yaml"), "--folder", str(script.parent)]) == 0
    trainer = yaml.safe_load(capsys.readouterr().out)["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 2)
    plain = {one["name"]: one["value"].replace("$$", "$") for one in trainer["env"]}  # as Kubernetes replaces it
    command = [word.replace("$$", "$") for word in trainer["command"]]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    of_operator = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "2", "PET_MASTER_ADDR": "127.0.0.1"}
    common = {**os.environ, **plain, **of_operator, "PET_MASTER_PORT": port}
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    pods = [
        subprocess.Popen(command, env={**common, **path, "PET_NODE_RANK": rank}, stdout=subprocess.PIPE, text=True)
        for rank in "01"
    ]
    outputs = [pod.communicate(timeout=150)[0] for pod in pods]

    assert [pod.returncode for pod in pods] == [0, 0]
    assert sorted("".join(outputs).splitlines()) == [
        f"{rank} 4.0 {['$$ $(HOME)', 'x y']} $(HOME) red" for rank in range(4)
    ]
