"""The starters of a run: what each node is asked to prepare, and what starters ask for themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.node.messages.agent import STARTER, Exited, Output, Prepare, WorkerStart
from lab.plan.cluster import Shape
from lab.plan.plan import Plan, PlanOptions, make_plan, unmade_cluster
from lab.run.drive import Starters
from lab.spec.scenario import Scenario

pytestmark = pytest.mark.features

LINE = b"HYDRA_LAUNCH: /bin/hydra_pmi_proxy --control-port node0:1 --proxy-id %d\n"


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "train.py").write_text("")
    scenario = Scenario(name="train", script=tmp_path / "train.py")
    cluster = unmade_cluster(Shape(nodes=2), "c")
    return make_plan(scenario, "r", cluster, PlanOptions(launcher="mpirun"))


@pytest.fixture
def starters(plan: Plan) -> Starters:
    found = Starters(plan, lambda *_: None)
    for number, node in enumerate(("node0", "node1")):
        prepare = found.prepare(node, Prepare("r", (WorkerStart(number, 0, {}, ["train.py"]),)))
        assert [start.argv[0] for start in prepare.starters] == (["mpiexec"] if node == "node0" else [])
        assert len(prepare.workers) == (1 if node == "node0" else 0), "nobody starts a worker but its starter"
    return found


def test_what_a_starter_asks_for_is_started_on_its_node_with_the_workers_planned_there(starters: Starters):
    asked: list[tuple[str, Prepare]] = []
    starters._ask = lambda node, prepare: asked.append((node, prepare))
    whole = LINE % 0 + LINE % 1 + LINE % 7
    for begin in range(0, len(whole), 50):
        starters.handle_message("node0", Output("r", STARTER, 1, 0.0, whole[begin : begin + 50]))
    assert [node for node, _ in asked] == ["node0", "node1"], "node 7 is none of the run"
    assert [worker.rank for worker in asked[1][1].workers] == [1]
    assert asked[1][1].starters[0].argv[-1] == "1"


def test_errors_of_a_starter_ask_for_nothing(starters: Starters):
    starters._ask = lambda node, prepare: pytest.fail("it was asked for")
    starters.handle_message("node0", Output("r", STARTER, 2, 0.0, LINE % 0))


def test_all_is_over_when_what_was_asked_for_has_ended_too(starters: Starters):
    starters.handle_message("node0", Output("r", STARTER, 1, 0.0, LINE % 1))
    both = {"node0", "node1"}
    starters.handle_message("node0", Exited(STARTER, 1.0, "node0", code=0))
    assert not starters.are_over(both)
    assert starters.are_over({"node0"}), "a node that is gone is not waited for"
    starters.handle_message("node1", Exited(STARTER, 1.0, "node1", code=1))
    assert starters.are_over(both)
    assert starters.failed
