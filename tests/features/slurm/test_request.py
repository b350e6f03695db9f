"""What Slurm is asked for, from shape and names alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.engine import ownership as label
from lab.engine.protocol import Request
from lab.errors import ClusterUnfit
from lab.features.slurm.command import HOME
from lab.features.slurm.create import agent_argv, queue_s, requests_for
from lab.plan.cluster import Shape
from lab.spec.keys import Volume


def asked(shape: Shape, run: str | None = None) -> list[Request]:
    return requests_for(Path("/home/me/h"), "c", shape, owner="me@login", run=run, pythons=["/env/python", "python3"])


def salloc(**shape: Any) -> list[str]:
    return list(asked(Shape(nodes=2, **shape))[0].body["argv"])


def test_an_allocation_carries_the_labels_by_which_it_is_found():
    argv = asked(Shape(nodes=2), run="r")[0].body["argv"]
    comment = json.loads(next(word for word in argv if word.startswith("--comment=")).partition("=")[2])
    wanted = {label.CLUSTER: "c", label.OWNER: "me@login", label.RUN: "r", HOME: "/home/me/h"}
    assert comment.items() >= wanted.items()
    assert Shape.from_json(comment[label.SHAPE]) == Shape(nodes=2)
    assert {"--no-shell", "--nodes=2", "--job-name=lab-c"} <= {*argv}


def test_what_a_node_may_use_becomes_options_and_what_a_person_says_comes_last():
    said = {"partition": "gpu", "exclusive": "", "immediate": "60"}
    argv = salloc(cpus=1.5, memory_bytes=1 << 30, gpus=2, hosts=("a", "b"), allocation=said)
    assert {"--cpus-per-task=2", "--mem=1024M", "--gres=gpu:2", "--nodelist=a,b"} <= {*argv}
    assert argv[-3:] == ["--partition=gpu", "--exclusive", "--immediate=60"]


def test_the_queue_is_waited_for_as_long_as_salloc_is_told():
    assert queue_s(Shape(nodes=1, allocation={"immediate": "60"})) == 60
    assert queue_s(Shape(nodes=1)) == 3600


def test_an_agent_is_started_on_its_machine_with_its_address_and_the_pythons_to_try():
    step = asked(Shape(nodes=2))[3]
    argv = agent_argv(step.body, "7", "n1", "10.0.0.2")
    assert argv[:4] == ["srun", "--jobid=7", "--overlap", "--nodelist=n1"]
    assert argv[-2:] == ["/env/python", "python3"]
    assert argv.index("10.0.0.2") > argv.index("sh")
    config = json.loads(argv[-3])
    assert (config["node"], config["container"]) == ("node1", False)
    assert len(f"{config['root']}/own/notes12") < 107


def test_an_image_is_for_pyxis():
    words = asked(Shape(nodes=1, image="pytorch/pytorch"))[2].body["argv"]
    assert words[0] == "--container-image=pytorch/pytorch"


def test_a_read_only_volume_is_read_only_in_an_image():
    volumes = tuple(Volume(source=Path("/a"), target=f"/{only}", read_only=only == "b") for only in "bc")
    mounts = asked(Shape(nodes=1, image="i", volumes=volumes))[2].body["argv"][2].partition("=")[2].split(",")
    assert mounts[1:] == ["/a:/b:ro", "/a:/c"]


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ({"allocation": {"nodes": "3"}}, "--allocation cannot set nodes"),
        ({"allocation": {"--time": "1"}}, "not a long option of salloc"),
        ({"hosts": ("a", "b", "c")}, "--hosts names 3 hosts, but the cluster has 2 nodes"),
        ({"strict": True}, "--strict needs the docker engine"),
        ({"image": "i", "requirements": ("x",)}, "cannot add packages to an image"),
        ({"volumes": (Volume(source=Path("/a"), target="/b"),)}, "cannot mount /a at /b"),
        ({"image": "i", "data": {"x": Path("/a,/etc")}}, "cannot mount /a,/etc in an image"),
        ({"image": "i", "volumes": (Volume(source=Path("/a"), target="/b:/etc"),)}, "cannot mount /b:/etc in an image"),
    ],
)
def test_what_slurm_cannot_be_asked_for_is_refused(shape: dict[str, Any], why: str):
    with pytest.raises(ClusterUnfit, match=why):
        salloc(**shape)
