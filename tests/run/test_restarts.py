"""The plan of each attempt that the lab itself begins."""

from __future__ import annotations

from pathlib import Path

from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.plan.plan import PlanOptions, make_plan
from lab.run.drive import make_attempt_plan
from lab.spec.launching import Lab, Launching
from lab.spec.scenario import Scenario


def test_workers_of_each_attempt_know_which_it_is() -> None:
    nodes = tuple(Node(name=f"node{rank}", node_rank=rank, handle=f"h{rank}", address="") for rank in range(2))
    cluster = ClusterInfo(name="c", engine="local", shape=Shape(nodes=2), nodes=nodes, owner="o")
    scenario = Scenario(name="s", script=Path("s.py"), launcher=Launching("lab", Lab(max_restarts=3)))
    plan = make_plan(scenario, "r", cluster, PlanOptions())

    first, third = make_attempt_plan(plan, 0), make_attempt_plan(plan, 2)

    for attempt, number in ((first, "0"), (third, "2")):
        for worker, planned in zip(attempt.workers, plan.workers, strict=True):
            told = {
                "TORCHELASTIC_RESTART_COUNT": number,
                "TORCHELASTIC_MAX_RESTARTS": "3",
            }
            assert worker == planned._replace(env={**planned.env, **told})
