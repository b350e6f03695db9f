"""What a plan, the calls of a run and the page of a watched one say of many ranks: once what they have in common."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.engine.protocol import Request
from lab.features.calls.notation import calls_text
from lab.features.watch.now import Follower
from lab.features.watch.server import state_of
from lab.plan.cluster import Shape
from lab.plan.plan import PlanOptions, make_plan, unmade_cluster
from lab.report.plan_view import plan_text, requests_text
from lab.report.style import Style
from lab.spec.load import scenario_from_script
from lab.trace.read import read_trace
from tests.features.watch.growing import ORIGIN, Growing
from tests.golden import golden
from tests.traces import TraceMaker

RANKS = 40
PLAIN = Style(colour=False, width=None)


def plan_lines(folder: Path, launcher: str) -> list[str]:
    (folder / "s.py").write_text("print()\n")
    cluster = unmade_cluster(Shape(nodes=RANKS // 2, nproc_per_node=2), "c")
    plan = make_plan(scenario_from_script(folder / "s.py"), "r", cluster, PlanOptions(launcher=launcher))
    return plan_text(plan, PLAIN).splitlines()


def test_workers_that_differ_in_their_place_only_are_one_row_of_a_plan(tmp_path: Path):
    rows = [" ".join(line.split()) for line in plan_lines(tmp_path, "lab") if line.startswith("node")]
    assert [row.partition(" 40 ")[0] for row in rows[1:]] == ["node0-node19 0-39 0, 1"]


def test_of_many_starters_the_first_ones_and_the_last_are_shown(tmp_path: Path):
    rows = [line for line in plan_lines(tmp_path, "torchrun") if line.startswith("node")]
    assert len(rows) == 7
    assert "15 more like these" in rows[-2]
    assert rows[-1].startswith("node19 ")


def test_of_many_things_that_would_be_made_most_are_counted():
    lines = requests_text([Request(f"container {n}", {"a": n}) for n in range(RANKS)]).splitlines()
    assert lines[:3] == ["would make container 0:", "  a: 0", golden(1)]
    assert lines[-1] == golden(2)


def test_ranks_that_called_the_same_share_a_list_and_the_odd_one_has_its_own(tmp_path: Path):
    made = TraceMaker(tmp_path / "run", RANKS)
    for rank in range(RANKS):
        made.call(rank, "broadcast" if rank == 7 else "all_reduce", 10, 20, [[1.0]], [[1.0]])
    lines = calls_text(read_trace(made.record())).splitlines()
    assert [line for line in lines if line.startswith("  ") and line[2].isdigit()] == [
        golden(1),
        "  7:",
    ]


@pytest.mark.parametrize(("size", "names"), [(3, ["rank 0", "rank 1", "rank 2"]), (RANKS, ["rank 7", None])])
def test_a_page_shows_ranks_that_do_the_same_as_one(tmp_path: Path, size: int, names: list[str | None]):
    run = Growing(tmp_path / "run", size)
    for rank in range(size):
        run.made.call(rank, "barrier" if rank == 7 else "all_reduce", 10, None, [[1.0]], red="SUM")
    run.write()
    follower = Follower(run.record)
    now, more = follower.poll(ORIGIN + 1)
    while more:
        now, more = follower.poll(ORIGIN + 1)
    ranks = state_of(replace(now, remarks=()))["ranks"]
    assert [rank["name"] for rank in ranks] == [name or "ranks 0-6 and 8-39" for name in names]
    assert ranks[-1]["node"] == ("node2" if size == 3 else "node0-node6 and node8-node39")
