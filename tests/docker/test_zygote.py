"""Nodes whose agents a zygote forked: containers as any other, with less memory, and no way to what made them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import Cluster
from lab.engine.docker.engine import DockerEngine
from lab.engine.ownership import CLUSTER
from lab.features.zygote.nodes import SWITCH
from lab.plan.cluster import ClusterInfo, Node
from tests.crash.conftest import wait_until
from tests.engines.conftest import scenario_of
from tests.golden import golden

if TYPE_CHECKING:
    import docker

pytestmark = pytest.mark.half

HOSTILE = Path(__file__).parents[1] / "hostile" / "scripts"
LEAST_BYTES = 40_000_000
"""More than a node at rest takes, and less than one does that imports torch itself."""

_SAY_WHO = """
import json, os
said = {}
for pid in filter(str.isdigit, os.listdir("/proc")):
    with open(f"/proc/{pid}/status") as file:
        said[pid] = dict(line.split(":", 1) for line in file)
    said[pid]["open"] = sorted(os.listdir(f"/proc/{pid}/fd")) if pid != str(os.getpid()) else []
    with open(f"/proc/{pid}/cgroup") as file:
        said[pid]["groups"] = file.read()
print(json.dumps(said))
"""
SAME = ("Uid", "Gid", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters")


@pytest.fixture(scope="module")
def cluster(person: None) -> Iterator[Cluster]:
    """A small cluster with a zygote."""
    made = Cluster(name=f"t-{uuid.uuid4().hex[:12]}", engine="docker", nodes=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, "always")
        made.up()
        yield made
    made.down()


def info_of(cluster: Cluster) -> ClusterInfo:
    info = cluster.info()
    assert info is not None
    return info


def zygotes(client: docker.DockerClient, cluster: Cluster) -> list:
    found = client.containers.list(all=True, filters={"label": f"{CLUSTER}={cluster.name}"})
    return [container for container in found if container.name.endswith("-zygote")]


def is_small(engine: DockerEngine, node: Node) -> bool:
    used = engine.memory_bytes(node)
    return used is not None and used < LEAST_BYTES


@pytest.mark.docker
def test_an_agent_is_in_its_node_may_do_what_its_first_process_may_and_sees_no_other(
    cluster: Cluster, docker_engine: docker.DockerClient
):
    (zygote,) = zygotes(docker_engine, cluster)
    for node in info_of(cluster).nodes:
        _, said = docker_engine.containers.get(node.handle).exec_run(["python3", "-c", _SAY_WHO])
        there = json.loads(said)
        first = there.pop("1")
        ((pid, agent),) = ((pid, who) for pid, who in there.items() if who["PPid"].strip() == "1")
        assert set(there) - {pid} <= {who for who in there if there[who]["PPid"].strip() == "0"}, "beside what looks"
        assert len(there) == 2
        assert {name: agent[name].strip() for name in SAME} == {name: first[name].strip() for name in SAME}
        assert agent["Seccomp"].strip() == "2"
        assert node.handle in agent["groups"]
        assert agent["groups"] == first["groups"]
        assert agent["open"] == ["0", "1", "2", "3", "4", "5"], "what an agent opens itself, and nothing else"
        assert zygote.id not in said.decode()


@pytest.mark.docker
def test_a_node_at_rest_takes_little_memory(cluster: Cluster):
    assert all(is_small(cluster.engine, node) for node in info_of(cluster).nodes)  # type: ignore[arg-type]


@pytest.mark.docker
def test_scripts_run_and_what_no_script_may_do_does_not_succeed(cluster: Cluster, tmp_path: Path):
    result = cluster.run(scenario_of("collectives.py"), runs=tmp_path)
    assert result.passed, result.reason

    result = cluster.run(scenario_of(HOSTILE / "attempts.py"), runs=tmp_path, nodes=1, nproc_per_node=2)

    assert result.passed, result.reason + result.ranks[0].log
    for rank in result.ranks:
        assert rank.notes["neighbours"][0] >= 2, "the first process and an agent are there to be attacked"
        assert rank.notes["done"] == []
        assert len(rank.notes["refused"]) > 100
        assert "forged" not in rank.notes


@pytest.mark.docker
def test_a_node_that_is_started_again_has_its_agent_from_the_zygote_or_imports_torch_itself(
    cluster: Cluster, docker_engine: docker.DockerClient, tmp_path: Path
):
    engine: DockerEngine = cluster.engine  # type: ignore[assignment]
    first, second, _ = nodes = info_of(cluster).nodes
    engine.stop([first])
    engine.start(info_of(cluster), [first], announce=lambda _: None)
    assert is_small(engine, first)

    (zygote,) = zygotes(docker_engine, cluster)
    zygote.kill()
    engine.stop([second])
    said: list[str] = []
    engine.start(info_of(cluster), [second], announce=said.append)
    assert golden(1) in said
    assert not is_small(engine, second)
    assert [node.handle for node in info_of(cluster).nodes] == [node.handle for node in nodes]
    result = cluster.run(scenario_of("collectives.py"), runs=tmp_path)
    assert result.passed, result.reason


@pytest.mark.docker
def test_a_node_ends_as_its_agent_ends_and_a_zygote_without_nodes_is_removed_too(
    cluster: Cluster, docker_engine: docker.DockerClient
):
    engine: DockerEngine = cluster.engine  # type: ignore[assignment]
    last = info_of(cluster).nodes[-1]
    docker_engine.containers.get(last.handle).exec_run(["sh", "-c", "kill -9 $(cat /proc/1/task/1/children)"])
    wait_until(lambda: not engine.node_state(last).running, "the node to end", 20.0)
    assert engine.node_state(last).sentence() == "was killed (SIGKILL)"

    for node in info_of(cluster).nodes:
        docker_engine.containers.get(node.handle).remove(force=True)
    assert cluster.info() is None
    assert cluster.name in engine.nodeless()
    engine.remove(cluster.name)
    assert zygotes(docker_engine, cluster) == []
    assert cluster.name not in engine.nodeless()
