"""Ranks, environment and arguments of every worker."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from lab.errors import UsageError
from lab.plan.cluster import MASTER_PORT, ClusterInfo, Node, Shape
from lab.plan.plan import PlanOptions, make_plan, unmade_cluster
from lab.spec.keys import Volume
from lab.spec.launching import Launching
from lab.spec.load import scenario_from_script
from lab.spec.scenario import Expect, Scenario, Tracing
from tests.golden import golden


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    (tmp_path / "s.py").write_text("print()\n")
    return replace(scenario_from_script(tmp_path / "s.py"), args=("--epochs", "3"))


def plan(scenario: Scenario, nnodes: int = 2, nproc_per_node: int = 3, **more):
    cluster = unmade_cluster(Shape(nodes=nnodes, nproc_per_node=nproc_per_node), "c")
    return make_plan(scenario, "r", cluster, PlanOptions(**more))


def test_ranks_are_node_major(scenario: Scenario):
    workers = plan(scenario).workers
    assert [(w.rank, w.node_rank, w.local_rank, w.node) for w in workers] == [
        (0, 0, 0, "node0"),
        (1, 0, 1, "node0"),
        (2, 0, 2, "node0"),
        (3, 1, 0, "node1"),
        (4, 1, 1, "node1"),
        (5, 1, 2, "node1"),
    ]


def test_a_worker_gets_the_variables_of_torchrun(scenario: Scenario):
    env = plan(scenario).workers[4].env
    expected = {
        "RANK": "4",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "6",
        "LOCAL_WORLD_SIZE": "3",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_RANK": "4",
        "ROLE_WORLD_SIZE": "6",
        "MASTER_ADDR": "node0",
        "MASTER_PORT": str(MASTER_PORT),
        "TORCHELASTIC_RUN_ID": "r",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "true",
        "OMP_NUM_THREADS": "1",
    }
    assert expected.items() <= env.items()


def test_threads_are_limited_only_where_workers_share_the_machine(scenario: Scenario):
    assert "OMP_NUM_THREADS" not in plan(scenario, 1, 1).workers[0].env
    assert plan(scenario, 3, 1).workers[0].env["OMP_NUM_THREADS"] == "1"


def test_the_scenarios_own_variables_win(scenario: Scenario):
    mine = replace(scenario, env={"OMP_NUM_THREADS": "4", "MINE": "x"})
    assert {"OMP_NUM_THREADS": "4", "MINE": "x"}.items() <= plan(mine).workers[0].env.items()


def test_every_rank_has_the_same_arguments(scenario: Scenario):
    assert {worker.argv for worker in plan(scenario).workers} == {("s.py", "--epochs", "3")}


def test_names_in_braces_are_the_values_of_each_rank(scenario: Scenario):
    words = (
        "--rank",
        "{rank}",
        "tcp://{master_addr}:{master_port}",
        "{local_rank}/{nproc_per_node}",
        "{nnodes}{x}",
        "{shared}/out",
    )
    planned = plan(replace(scenario, args=words), 2, 2)
    host = f"tcp://{planned.master_addr}:{planned.master_port}"
    assert [worker.argv[1:] for worker in planned.workers] == [
        ("--rank", str(rank), host, f"{rank % 2}/2", "2{x}", f"{planned.workers[0].env['LAB_SHARED']}/out")
        for rank in range(4)
    ]


@pytest.mark.features
def test_a_launcher_of_its_own_cannot_give_each_rank_its_arguments(scenario: Scenario):
    with pytest.raises(UsageError, match="torchrun passes all ranks the same arguments") as caught:
        plan(replace(scenario, args=("{rank}",), launcher=Launching(name="torchrun")))
    assert "RANK" in caught.value.hint


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "PYTHONHASHSEED", "MKL_NUM_THREADS", "KMP_AFFINITY", "TORCH_CPP_LOG_LEVEL"]
)
def test_a_variable_that_a_fork_cannot_honour_is_refused_unless_cold(scenario: Scenario, name: str):
    mine = replace(scenario, env={name: "1"})
    with pytest.raises(UsageError, match=name) as caught:
        plan(mine)
    assert "--cold" in caught.value.hint
    assert plan(mine, cold=True).cold
    assert plan(replace(mine, cold=True)).cold


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "PYTHONPATH", "TZ", "MY_VARIABLE", "NCCL_DEBUG"])
def test_a_variable_that_a_fork_can_honour_is_taken(scenario: Scenario, name: str):
    assert plan(replace(scenario, env={name: "1"})).workers[0].env[name] == "1"


@pytest.mark.parametrize(
    ("nnodes", "nproc_per_node", "sentence"),
    [
        (0, 1, "found 0 x 1 ranks; allowed: 1 to 4,096 ranks on all nodes"),
        (1, 0, "found 1 x 0 ranks"),
        (-1, 1, "found -1 x 1 ranks"),
        (4097, 1, "found 4,097 x 1 ranks"),
        (64, 65, "allowed: 1 to 4,096"),
    ],
)
def test_a_size_that_makes_no_sense_is_refused(scenario: Scenario, nnodes: int, nproc_per_node: int, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        plan(scenario, nnodes, nproc_per_node)


@pytest.mark.parametrize("expect", [Expect(exit={6: 0}), Expect(logs={9: "x"})])
def test_what_is_expected_of_a_rank_beyond_the_last_is_refused(scenario: Scenario, expect: Expect):
    with pytest.raises(UsageError, match="but world_size is 6"):
        plan(replace(scenario, expect=expect))


def test_a_timeout_asked_for_wins_over_the_scenarios(scenario: Scenario):
    assert plan(scenario).timeout_s == scenario.timeout_s
    assert plan(scenario, timeout_s=1.5).timeout_s == 1.5


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, 720 * 3600 + 1, math.nan, math.inf])
def test_a_timeout_that_no_scenario_could_have_is_refused(scenario: Scenario, timeout_s: float):
    with pytest.raises(UsageError, match=golden(1)):
        plan(scenario, timeout_s=timeout_s)
    assert plan(scenario, timeout_s=720 * 3600).timeout_s == 720 * 3600


def test_an_address_of_the_script_is_rewritten_if_the_scenario_or_the_command_says_so(scenario: Scenario):
    def rewrites(one: Scenario, **asked: bool) -> bool:
        return "LAB_REWRITE_ADDRESS" in plan(one, **asked).workers[0].env

    assert not rewrites(scenario)
    assert rewrites(scenario, rewrite_address=True)
    assert rewrites(replace(scenario, rewrite_address=True))


@pytest.mark.parametrize(
    ("says", "asked", "comes"),
    [
        (Tracing(), {}, Tracing()),
        (Tracing(values=9), {}, Tracing(values=9)),
        (Tracing(values=9), {"trace_values": 0}, Tracing(values=0)),
        (Tracing(), {"trace": False}, Tracing(on=False)),
        (Tracing(on=False), {"trace": True}, Tracing(on=False)),
    ],
)
def test_a_trace_is_made_as_was_asked_for_and_else_as_the_scenario_says(
    scenario: Scenario, says: Tracing, asked: dict[str, int], comes: Tracing
):
    assert plan(replace(scenario, trace=says), **asked).trace == comes


@pytest.mark.parametrize("values", [-1, 1_000_001])
def test_a_number_of_values_that_makes_no_sense_is_refused(scenario: Scenario, values: int):
    with pytest.raises(UsageError, match=golden(1, values)):
        plan(scenario, trace_values=values)


def test_a_plan_is_plain_data_as_json(scenario: Scenario):
    data = json.loads(json.dumps(plan(scenario).to_json()))
    assert data["backend"] is None
    assert (data["world_size"], len(data["workers"]), data["scenario"]) == (6, 6, "s")


def test_a_worker_is_told_the_backend_of_its_scenario_and_whether_another_was_asked_for(scenario: Scenario):
    said = plan(replace(scenario, backend="gloo"))
    assert (said.backend, said.substituted, said.workers[0].env["LAB_BACKEND"]) == ("gloo", False, "gloo")
    assert "LAB_BACKEND_INSTEAD" not in said.workers[0].env
    asked = plan(replace(scenario, backend="gloo"), backend="nccl")
    assert (asked.backend, asked.substituted) == ("nccl", True)
    assert (asked.workers[5].env["LAB_BACKEND"], asked.workers[5].env["LAB_BACKEND_INSTEAD"]) == ("nccl", "1")
    assert "LAB_BACKEND" not in plan(scenario).workers[0].env


def test_a_backend_that_the_lab_does_not_have_is_refused(scenario: Scenario):
    with pytest.raises(UsageError, match=golden(1)):
        plan(scenario, backend="np")


@pytest.mark.features
def test_mpi_is_started_by_mpirun_whose_ranks_are_one_user_on_a_node(scenario: Scenario):
    for made in (plan(scenario, backend="mpi"), plan(replace(scenario, backend="mpi"))):
        assert (made.launcher.name, made.one_user) == ("mpirun", True)
        assert [starter.node for starter in made.starters] == ["node0"]
    assert not plan(scenario, backend="gloo").starters


@pytest.mark.features
@pytest.mark.parametrize("launcher", ["lab", "torchrun"])
def test_what_cannot_start_mpi_is_refused(scenario: Scenario, launcher: str):
    with pytest.raises(UsageError, match=golden(1, launcher)):
        plan(scenario, backend="mpi", launcher=launcher)


def test_the_largest_plan_is_made_in_a_moment(scenario: Scenario):
    assert len(plan(scenario, 512, 8).workers) == 4096


# -- clusters


def test_a_shape_survives_its_label():
    shape = Shape(
        nodes=3,
        nproc_per_node=2,
        image="a/b:1",
        cpus=0.5,
        memory_bytes=1 << 30,
        volumes=(Volume(source=Path("/data ü"), target="/data", read_only=True),),
        env={"A": 'quote " and ü'},
    )
    assert Shape.from_json(shape.to_json()) == shape


def test_a_shape_of_another_version_is_read_as_far_as_it_is_known():
    assert Shape.from_json('{"nodes": 2, "flux": 7}') == Shape(nodes=2)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"nodes": 5}, "nodes: 3, requested 5"),
        ({"cpus": 2.0}, "cpus: none, requested 2"),
        ({"memory_bytes": 2**30}, "memory: none, requested 1 GiB"),
        ({"strict": True}, "strict: no, requested yes"),
        ({"volumes": (Volume(source=Path("/a"), target="/b", read_only=True),)}, "volumes: none, requested /a:/b:ro"),
        ({"env": {"A": "1"}}, "env: none, requested A=1"),
    ],
)
def test_what_differs_between_shapes_is_said(change, sentence: str):
    assert Shape(nodes=3).differences(replace(Shape(nodes=3), **change)) == [sentence]
    assert Shape(nodes=3).differences(Shape(nodes=3)) == []


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (["running", "running"], "ready"),
        (["running", "exited"], "partial"),
        (["running"], "partial"),
        (["exited", "dead"], "dead"),
        ([], "dead"),
    ],
)
def test_a_cluster_is_ready_when_every_node_that_was_asked_for_runs(states: list[str], state: str):
    nodes = tuple(Node(name=f"node{i}", node_rank=i, handle="", address="", state=s) for i, s in enumerate(states))
    info = ClusterInfo(name="c", engine="fake", shape=Shape(nodes=2), nodes=nodes, owner="me")
    assert info.state == state
