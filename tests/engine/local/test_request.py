"""What makes a local cluster, without making one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lab.engine.agent_holder import DESCRIPTION
from lab.engine.local.engine import free_network, network_name, network_number, node_address, requests_for
from lab.errors import ClusterError
from lab.plan.cluster import Shape
from lab.spec.keys import Volume
from tests.golden import golden

HOME = Path("/tmp/h")


def test_a_cluster_is_a_folder_and_one_process_that_holds_the_nodes():
    shape = Shape(nodes=2, env={"A": "1"}, memory_bytes=2**30)
    folder, process = requests_for(HOME, "c", shape, network="7.8", run="r")
    assert (folder.what, process.what) == ("folder /tmp/h/c", "process of 2 agents")
    description = folder.body["cluster.json"]
    assert (Shape.from_json(description["shape"]), description["network"], description["run"]) == (shape, "7.8", "r")
    python, _, program, life, control = process.body["argv"]
    assert (python, life, control) == (sys.executable, "/tmp/h/c/zygote.lock", "/tmp/h/c/zygote.sock")
    assert "/tmp/h/c/site" in program
    assert [(agent["node"], agent["socket"], agent["memory_bytes"]) for agent in process.body["agents"]] == [
        ("node0", "/tmp/h/c/node0.sock", 2**30),
        ("node1", "/tmp/h/c/node1.sock", 2**30),
    ]
    assert process.body["environment"] == {"GLOO_SOCKET_IFNAME": "lo", "A": "1", "LAB_LOCAL_CLUSTER": "/tmp/h/c"}


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (Shape(nodes=1, image="mine:1"), "cannot use the image mine:1: it has no images"),
        (Shape(nodes=1, strict=True), "--strict needs the docker engine"),
        (Shape(nodes=1, volumes=(Volume(source=Path("/a"), target="/b"),)), "cannot mount /a at /b"),
    ],
)
def test_what_processes_of_this_machine_cannot_be_is_refused(shape: Shape, message: str):
    with pytest.raises(ClusterError, match=message):
        requests_for(HOME, "c", shape, network="7.8", run=None)


def test_agents_of_nodes_with_packages_do_not_use_them_and_pass_them_to_workers():
    packages = "/cache/environments/key"
    shape = Shape(nodes=1, requirements=("tqdm",))
    _, process = requests_for(HOME, "c", shape, network="7.8", run=None, packages=packages)
    assert process.body["argv"][0] == sys.executable
    assert "PATH" not in process.body["environment"]
    assert [agent["packages"] for agent in process.body["agents"]] == [packages]


def described(home: Path, name: str, network: str, nodes: int) -> None:
    (home / name).mkdir()
    description = {"shape": Shape(nodes=nodes).to_json(), "network": network}
    (home / name / DESCRIPTION).write_text(json.dumps(description))


def test_addresses_of_many_nodes_go_on_in_the_next_network():
    assert [node_address("7.255", rank) for rank in (0, 249, 250, 600)] == [
        "127.7.255.1",
        "127.7.255.250",
        "127.8.0.1",
        "127.8.1.101",
    ]
    assert len({node_address("1.0", rank) for rank in range(2000)}) == 2000


def test_a_network_is_free_where_no_cluster_has_it_nor_any_that_follow_and_are_needed(tmp_path: Path):
    names = (f"c{number}" for number in range(1000))
    mine = next(name for name in names if network_number(free_network(tmp_path, name, 600)) < 60_000)
    first = free_network(tmp_path, mine, 600)
    number = network_number(first)
    described(tmp_path, "in-the-midst", network_name(number + 2), 1)
    second = network_number(free_network(tmp_path, mine, 600))
    assert second == number + 3  # three networks with none of another's among them
    described(tmp_path, "large", network_name(number + 3), 2000)
    assert network_number(free_network(tmp_path, mine, 600)) == number + 3 + 8
    assert free_network(tmp_path, mine, 250) == first


def test_more_nodes_than_there_are_addresses_are_refused(tmp_path: Path):
    with pytest.raises(ClusterError, match=golden(1)):
        free_network(tmp_path, "mine", 250 * 65_024 + 1)
