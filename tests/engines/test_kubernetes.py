"""What only Kubernetes does to a cluster: it lets it wait, takes its pods away, and loses machines."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import Cluster, Result
from lab.errors import ClusterError
from lab.features.kubernetes.command import Target
from lab.features.kubernetes.engine import KubernetesEngine
from lab.features.slurm.engine import home_of
from tests.conftest import ROOT
from tests.crash.conftest import wait_until
from tests.engines.conftest import written
from tests.golden import golden

pytestmark = [pytest.mark.kubernetes, pytest.mark.usefixtures("person")]
TURNS = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
for turn in range(20000):
    dist.all_reduce(torch.ones(1))
    if turn == 10 and dist.get_rank() == 0:
        print("going", flush=True)
    time.sleep(0.02)
"""
Make = Callable[..., Cluster]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes clusters that a test may break; what is left of them is removed."""
    made: list[Cluster] = []

    def make(**shape: object) -> Cluster:
        made.append(Cluster(name=f"t-{uuid.uuid4().hex[:12]}", engine="kubernetes", **shape))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for cluster in made:
        cluster.down()
        wait_until(lambda name=cluster.name: left(name) == [], "everything to be gone", 60.0)  # type: ignore[misc]
        assert not (home_of("kubernetes") / cluster.name).exists()


def left(cluster: str) -> list[str]:
    kinds = "pods,services,configmaps,networkpolicies"
    return Target().ask("get", kinds, f"--selector=lab.cluster.name={cluster}", "--output=name").split()


def pod_of(cluster: Cluster, node: str) -> str:
    return next(name for name in left(cluster.name) if name.startswith("pod/") and name.endswith(node))


def run_until(cluster: Cluster, folder: Path, what: Callable[[], object]) -> Result:
    """Run something that goes on, and do something in its midst."""
    outcome: list[Result] = []
    script = written(folder / "turns", TURNS)
    going = threading.Thread(target=lambda: outcome.append(cluster.run(script, runs=folder / "runs")))
    going.start()
    wait_until(lambda: any("going" in log.read_text() for log in folder.rglob("rank0.log")), "the run to go on", 60.0)
    what()
    going.join(60)
    return outcome[0]


def test_a_run_whose_pod_is_deleted_names_the_node(make: Make, tmp_path: Path):
    cluster = make(nodes=2)
    cluster.up()
    pod = pod_of(cluster, "node1")
    result = run_until(cluster, tmp_path, lambda: Target().ask("delete", pod, "--wait=false"))
    assert (result.verdict, golden(1) in result.reason) == ("failed", True), result


def test_a_run_whose_machine_loses_power_names_the_node_and_the_machine(make: Make, tmp_path: Path):
    cluster = make(nodes=2)
    info, _ = cluster.up()
    machine = info.nodes[1].host
    try:
        result = run_until(cluster, tmp_path, lambda: subprocess.run([ROOT / "dev/kube", "off", machine], check=True))
        assert (result.verdict, golden(1, machine) in result.reason) == ("failed", True), result
    finally:
        cluster.down()
        subprocess.run([ROOT / "dev/kube", "on", machine], check=True)


def test_when_what_holds_the_agents_is_killed_everything_is_deleted(make: Make):
    cluster = make(nodes=1)
    cluster.up()
    assert len(left(cluster.name)) == 3
    os.kill(int((home_of("kubernetes") / cluster.name / KubernetesEngine.life).read_text()), signal.SIGKILL)
    wait_until(lambda: left(cluster.name) == [], "everything to be gone", 60.0)


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        (
            {"cpus": 1000.0, "allocation": {"wait": "1s"}},
            "node0 did not start within 1 s: 0/3 nodes are available: 3 Insufficient cpu.",
        ),
        (
            {"image": "lab-none:1", "allocation": {"template": "never.yaml"}},
            ' cannot start: ErrImageNeverPull (Container image "lab-none:1" is not present with pull policy of Never)',
        ),
        ({"allocation": {"namespace": "lab-none"}}, 'Kubernetes refuses: namespaces "lab-none" not found'),
        ({"allocation": {"context": "lab-none"}}, "Kubernetes refuses: cannot locate context lab-none"),
    ],
)
def test_a_cluster_that_cannot_start_says_why_and_leaves_nothing(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: dict[str, object], why: str
):
    monkeypatch.chdir(tmp_path)
    Path("never.yaml").write_text("spec: {containers: [{name: node, imagePullPolicy: Never}]}\n")
    cluster = make(nodes=2, **shape)
    with pytest.raises(ClusterError) as refused:
        cluster.up()
    assert why in refused.value.message


def test_a_strict_pod_runs_as_nobody_important(make: Make, capfd: pytest.CaptureFixture[str]):
    cluster = make(nodes=1, strict=True)
    info, _ = cluster.up()
    assert cluster.engine.execute(info, info.nodes[0], ["id", "-u"], tty=False) == 0  # type: ignore[attr-defined]
    assert capfd.readouterr().out == "20000\n"
    assert any(name.startswith("networkpolicy") for name in left(cluster.name))
