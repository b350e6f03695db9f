"""What torchrun's agents are started with; and that torchrun itself reads it as it is meant."""

from __future__ import annotations

import pytest

from lab.features.launchers.launchers import Torchrun
from lab.spec.launching import Launching, Layout, find_launcher, launcher_names
from tests.golden import golden


def layout(nodes: int = 3, argv: tuple[str, ...] = ("train.py",), **told: object) -> Layout:
    settings = Launching("torchrun", Torchrun(**told))  # type: ignore[arg-type]
    addresses = tuple(f"node{rank}" for rank in range(nodes))
    return Layout("run-1", addresses, 2, 28411, {"NAME": "value"}, argv, settings)


def option(argv: tuple[str, ...], name: str) -> str:
    return argv[argv.index(name) + 1]


@pytest.mark.parametrize("name", launcher_names())
def test_each_launcher_starts_what_it_is_given_on_nodes_of_the_run(name: str) -> None:
    asked = layout()
    launcher = find_launcher(name)
    assert launcher.refusal(asked) == ""
    assert {starter.node for starter in launcher.starters(asked)} <= {"node0", "node1", "node2"}


def test_there_is_one_agent_a_node_and_each_says_its_own_address() -> None:
    starters = find_launcher("torchrun").starters(layout())
    assert [starter.node for starter in starters] == ["node0", "node1", "node2"]
    assert [option(starter.argv, "--local-addr") for starter in starters] == ["node0", "node1", "node2"]
    for starter in starters:
        assert option(starter.argv, "--rdzv-endpoint") == "node0:28411"
        assert option(starter.argv, "--nnodes") == "3:3"
        assert option(starter.argv, "--nproc-per-node") == "2"
        assert starter.env["NAME"] == "value"
        assert starter.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"


def test_arguments_of_the_script_come_last_as_they_are() -> None:
    (starter,) = find_launcher("torchrun").starters(layout(1, ("train.py", "--nnodes", "7", "")))
    assert starter.argv[-4:] == ("train.py", "--nnodes", "7", "")


@pytest.mark.parametrize(
    ("told", "nnodes"),
    [({"min_nodes": 2}, "2:3"), ({"max_nodes": 5}, "3:5"), ({"min_nodes": 1, "max_nodes": 2}, "1:2")],
)
def test_how_many_nodes_are_enough_and_how_many_are_too_many(told: dict[str, int], nnodes: str) -> None:
    (first, *_) = find_launcher("torchrun").starters(layout(**told))
    assert option(first.argv, "--nnodes") == nnodes


def test_more_nodes_than_there_are_cannot_be_waited_for() -> None:
    refusal = find_launcher("torchrun").refusal(layout(2, min_nodes=3))
    assert refusal == golden(1)
