"""The requests that make a cluster of containers, without an engine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lab.engine.docker.image import DEFAULT_IMAGE
from lab.engine.docker.request import requests_for
from lab.errors import ClusterError
from lab.plan.cluster import Shape
from lab.plan.limits import Limits, Machine
from lab.spec.keys import Volume
from tests.golden import golden

SHAPE = Shape(nodes=2)


def bodies(shape: Shape = SHAPE, **more) -> list[dict]:
    return [dict(request.body) for request in requests_for("c", shape, **{"owner": "me@here", "run": None, **more})]


def test_a_cluster_is_a_network_a_volume_and_a_container_a_node_in_this_order():
    requests = requests_for("c", SHAPE, owner="me@here", run=None)
    assert [request.what for request in requests] == [
        "network lab-c",
        "volume lab-c-shared",
        "volume lab-c-store",
        "container lab-c-node0",
        "container lab-c-node1",
    ]
    assert json.loads(json.dumps([dict(request.body) for request in requests])) == bodies()


def test_everything_carries_the_labels_by_which_it_is_found_and_removed():
    common = {"lab.cluster.name": "c", "lab.cluster.owner": "me@here", "lab.cluster.run": "20200101-x"}
    for body in bodies(run="20200101-x"):
        assert body["Labels"].items() >= common.items()
        assert Shape.from_json(body["Labels"]["lab.cluster.shape"]) == SHAPE
    assert [body["Labels"].get("lab.cluster.node") for body in bodies()] == [None, None, None, "node0", "node1"]
    assert not any("lab.cluster.run" in body["Labels"] for body in bodies())


def test_a_node_is_known_to_the_others_by_its_name():
    network, volume, _, *nodes = bodies()
    for rank, node in enumerate(nodes):
        assert node["Hostname"] == f"node{rank}"
        assert node["NetworkingConfig"] == {"EndpointsConfig": {network["Name"]: {"Aliases": [f"node{rank}"]}}}
        assert node["HostConfig"]["NetworkMode"] == network["Name"]
        assert f"{volume['Name']}:/shared" in node["HostConfig"]["Binds"]
        assert json.loads(node["Cmd"][0])["node"] == f"node{rank}"


def test_a_container_has_no_capability_beyond_those_that_the_agent_needs_and_can_gain_none():
    host = bodies()[3]["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert not {"SYS_ADMIN", "SYS_PTRACE", "NET_RAW", "SYS_MODULE"} & set(host["CapAdd"])
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert "Privileged" not in host
    assert "PortBindings" not in host


def test_standard_input_stays_open_when_the_first_client_goes():
    node = bodies()[3]
    assert (node["OpenStdin"], node["StdinOnce"]) == (True, False)


@pytest.mark.parametrize(
    ("asked", "host"),
    [
        ({"memory_bytes": 2**32}, {"Memory": 2**32, "MemorySwap": 2**32, "ShmSize": 2**30}),
        ({"memory_bytes": 2**29}, {"Memory": 2**29, "MemorySwap": 2**29, "ShmSize": 2**28}),
        ({"cpus": 1.5}, {"NanoCpus": 1_500_000_000}),
        ({"gpus": 2}, {"DeviceRequests": [{"DeviceIDs": ["0", "1"], "Capabilities": [["gpu"]]}]}),
    ],
)
def test_a_limit_stands_in_the_request_only_where_it_was_asked_for(asked: dict, host: dict):
    assert bodies(replace(SHAPE, **asked))[3]["HostConfig"].items() >= host.items()
    assert not {"Memory", "MemorySwap", "PidsLimit", "NanoCpus", "DeviceRequests", "ReadonlyRootfs"} & set(
        bodies()[3]["HostConfig"]
    )


def test_each_node_has_gpus_of_its_own():
    requests = [body["HostConfig"]["DeviceRequests"][0] for body in bodies(replace(SHAPE, gpus=2))[3:]]
    assert [request["DeviceIDs"] for request in requests][:2] == [["0", "1"], ["2", "3"]]


def test_limits_that_nobody_asked_for_are_parts_of_the_machine_and_stand_in_a_label():
    machine = Machine(cores=2, memory_bytes=10 * 2**30, free_disk_bytes=40 * 2**30)
    node = bodies(machine=machine)[3]
    assert node["HostConfig"].items() >= {"Memory": 2**32, "MemorySwap": 2**32, "PidsLimit": 1024}.items()
    limits = Limits(memory_bytes=2**32, processes=1024, disk_bytes=10 * 2**30)
    assert Limits.from_json(node["Labels"]["lab.cluster.limits"]) == limits
    assert json.loads(node["Cmd"][0])["disk_bytes"] == limits.disk_bytes


def test_a_strict_cluster_has_no_way_out_and_nothing_to_write_on():
    network, volume, _, node, _ = bodies(replace(SHAPE, strict=True), machine=Machine(cores=1, memory_bytes=2**32))
    assert network["Internal"] is True
    assert network["Options"]
    assert volume["DriverOpts"]["type"] == "tmpfs"
    assert f"size={2**28}" in volume["DriverOpts"]["o"]
    assert node["HostConfig"]["ReadonlyRootfs"] is True
    assert {"/tmp", "/var/lab", "/opt/lab"} <= set(node["HostConfig"]["Tmpfs"])
    with pytest.raises(ClusterError, match="cannot mount folders"):
        bodies(replace(SHAPE, strict=True, volumes=(Volume(source=Path("/a"), target="/b"),)))


def test_image_environment_and_folders_are_those_of_the_shape():
    folders = (Volume(source=Path("/a"), target="/b"), Volume(source=Path("/c"), target="/d", read_only=True))
    node = bodies(replace(SHAPE, image="mine:1", env={"A": "1", "B": "x=y"}, volumes=folders))[4]
    assert (node["Image"], node["Env"]) == ("mine:1", ["A=1", "B=x=y"])
    assert node["HostConfig"]["Binds"] == ["lab-c-shared:/shared", "lab-c-store:/var/lab-contents", "/a:/b", "/c:/d:ro"]
    assert bodies()[3]["Image"] == DEFAULT_IMAGE


def test_what_lists_of_processes_show_of_a_node_is_not_the_source_of_its_agent():
    node = bodies()[3]
    shown = " ".join((*node["Entrypoint"], *node["Cmd"]))
    assert "tarfile" not in shown
    assert len(shown) < 650


def test_data_is_mounted_read_only_below_one_folder_and_stays_after_a_run():
    node = bodies(replace(SHAPE, data={"mnist": Path("/d:1/m")}))[-1]
    assert node["HostConfig"]["Mounts"] == [
        {"Type": "bind", "Source": "/d:1/m", "Target": "/data/mnist", "ReadOnly": True}
    ]
    assert json.loads(node["Cmd"][0])["kept"] == ["/shared", "/data/mnist"]
    with pytest.raises(ClusterError, match=golden(1)):
        bodies(replace(SHAPE, data={"d": Path("/d")}, strict=True))


def test_nodes_with_packages_are_of_the_image_that_was_made_for_them():
    shape = replace(SHAPE, requirements=("tqdm",))
    *_, node = bodies(shape, image="lab-packages:1")
    assert node["Image"] == "lab-packages:1"
    assert Shape.from_json(node["Labels"]["lab.cluster.shape"]).requirements == ("tqdm",)


def forked(shape: Shape) -> bool:
    """Whether a zygote is asked for."""
    return bool([body for body in bodies(shape) if "lab.cluster.zygote" in body.get("Labels", {})])


@pytest.mark.features
def test_a_zygote_is_asked_for_where_many_nodes_would_import_torch_each(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LAB_DOCKER_ZYGOTE", raising=False)
    many = replace(SHAPE, nodes=9)
    assert not forked(replace(SHAPE, nodes=8))
    assert forked(many)
    requests = requests_for("c", many, owner="me@here", run=None)
    assert [request.what for request in requests][-2:] == ["container lab-c-node8", "container lab-c-zygote"]


@pytest.mark.features
@pytest.mark.parametrize(
    "other", [{"strict": True}, {"image": "mine:1"}, {"requirements": ("tqdm",)}, {"gpus": 1}], ids=str
)
def test_no_zygote_imports_what_the_lab_did_not_make_or_serves_strangers(monkeypatch: pytest.MonkeyPatch, other: dict):
    monkeypatch.setenv("LAB_DOCKER_ZYGOTE", "always")
    assert forked(SHAPE)
    assert not forked(replace(SHAPE, **other))


def test_who_does_not_want_a_zygote_gets_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LAB_DOCKER_ZYGOTE", "never")
    assert not forked(replace(SHAPE, nodes=64))


@pytest.mark.features
def test_a_zygote_has_no_way_to_a_node_but_those_that_it_enters(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LAB_DOCKER_ZYGOTE", "always")
    *_, node, _, zygote = bodies(replace(SHAPE, env={"A": "1"}))
    host = zygote["HostConfig"]
    assert (host["NetworkMode"], host["IpcMode"], host["PidMode"]) == ("none", "private", "host")
    assert "Privileged" not in host
    assert set(host["CapAdd"]) - set(node["HostConfig"]["CapAdd"]) == {"SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE"}
    assert (zygote["Image"], zygote["Env"]) == (node["Image"], node["Env"])
    assert "lab.cluster.node" not in zygote["Labels"]
    assert node["HostConfig"]["SecurityOpt"] == ["no-new-privileges"]
    assert node["HostConfig"]["Init"] is False
