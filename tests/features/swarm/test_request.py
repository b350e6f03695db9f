"""What a manager is asked for, from plain data alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.engine import ownership as label
from lab.engine.docker.request import requests_for
from lab.engine.protocol import Request
from lab.features.swarm.create import translated
from lab.features.swarm.hosts import OWNER
from lab.plan.cluster import Shape
from lab.plan.limits import Machine
from lab.spec.keys import Volume

MACHINE = Machine(cores=4, memory_bytes=16 << 30)


def asked(shape: Shape, **more: Any) -> list[Request]:
    docker = requests_for("c", shape, owner="me@here", run=None, machine=MACHINE, image="sha256:1", zygote=False)
    return translated(docker, shape, **more)


def container(request: Request) -> dict[str, Any]:
    return dict(request.body["TaskTemplate"]["ContainerSpec"])


def mounts(request: Request) -> dict[str, dict[str, Any]]:
    return {mount["Target"]: mount for mount in container(request)["Mounts"]}


def test_a_cluster_is_an_overlay_network_and_a_service_a_node_with_a_name_of_its_own():
    network, *services = asked(Shape(nodes=12))
    assert (network.body["Driver"], network.body["Attachable"], network.body["Internal"]) == ("overlay", True, False)
    assert [service.what for service in services] == [f"service lab-c-node{rank}" for rank in range(12)]
    for rank, service in enumerate(services):
        task = service.body["TaskTemplate"]
        assert task["Networks"] == [{"Target": "lab-c", "Aliases": [f"node{rank}"]}]
        assert task["RestartPolicy"] == {"Condition": "none"}
        assert service.body["EndpointSpec"] == {"Mode": "dnsrr"}
        assert container(service)["Hostname"] == f"node{rank}"
        assert container(service)["OpenStdin"]


def test_labels_are_those_of_the_lab_but_for_the_owner_so_that_a_docker_engine_does_not_take_its_part_for_a_cluster():
    for request in asked(Shape(nodes=2)):
        labels = request.body["Labels"]
        assert labels[OWNER] == "me@here"
        assert labels[label.CLUSTER] == "c"
        assert label.OWNER not in labels
    _, service, _ = asked(Shape(nodes=2))
    assert container(service)["Labels"] == service.body["Labels"]


def test_what_was_asked_for_is_reserved_and_what_nobody_asked_for_is_only_a_limit():
    _, service = asked(Shape(nodes=1))
    resources = service.body["TaskTemplate"]["Resources"]
    assert resources["Reservations"] == {}
    assert resources["Limits"]["MemoryBytes"] > 1 << 30
    assert resources["Limits"]["Pids"] > 0
    _, service = asked(Shape(nodes=1, cpus=1.5, memory_bytes=1 << 30))
    resources = service.body["TaskTemplate"]["Resources"]
    assert resources["Reservations"] == {"NanoCPUs": 1_500_000_000, "MemoryBytes": 1 << 30}
    assert {**resources["Limits"], "Pids": None} == {"NanoCPUs": 1_500_000_000, "MemoryBytes": 1 << 30, "Pids": None}


def test_hosts_that_were_not_asked_for_get_no_node():
    _, service = asked(Shape(nodes=1), not_on=["b", "a"])
    assert service.body["TaskTemplate"]["Placement"] == {"Constraints": ["node.id!=a", "node.id!=b"]}


def test_nodes_share_a_folder_that_the_hosts_have_in_common_or_a_volume_on_each_host():
    _, service = asked(Shape(nodes=1), shared="/srv/lab/c")
    assert mounts(service)["/shared"] == {"Type": "bind", "Source": "/srv/lab/c", "Target": "/shared"}
    _, service = asked(Shape(nodes=1))
    volume = mounts(service)["/shared"]
    assert (volume["Type"], volume["Source"]) == ("volume", "lab-c-shared")
    assert volume["VolumeOptions"]["Labels"][OWNER] == "me@here"


def test_volumes_and_data_are_folders_of_the_host():
    shape = Shape(nodes=1, volumes=(Volume(source=Path("/a"), target="/b", read_only=True),), data={"d": Path("/c")})
    _, service = asked(shape)
    assert mounts(service)["/b"] == {"Type": "bind", "Source": "/a", "Target": "/b", "ReadOnly": True}
    assert mounts(service)["/data/d"]["Source"] == "/c"


def test_a_strict_node_can_write_in_memory_only_and_has_no_way_out():
    network, service = asked(Shape(nodes=1, strict=True), shared="/srv/lab/c")
    assert network.body["Internal"]
    assert container(service)["ReadOnly"]
    for folder in ("/tmp", "/shared"):
        options = mounts(service)[folder]["VolumeOptions"]["DriverConfig"]["Options"]
        assert (options["type"], "size=" in options["o"]) == ("tmpfs", True)
