"""What many ranks or nodes have in common is shown once, and the odd one by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lab.features.calls.notation import steps_text
from lab.features.export.verb import traffic_text
from lab.features.html.page import expectation_rows, stack_rows, worker_rows
from lab.features.pytest.items import last_lines_text
from lab.features.suite.view import last_printed
from lab.features.traffic.traffic import matrix_view
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.plan.plan import WorkerPlan
from lab.record.result import Culprit, Expectation, RankResult, Result
from lab.report.cluster_view import cluster_text, node_rows
from lab.report.style import Style, collapse_similar, group_equal
from lab.report.verdict import note_rows, result_text, verdict_text
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from tests.golden import golden
from tests.traces import TraceMaker

PLAIN = Style(colour=False)


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]


def cluster(nodes: int) -> ClusterInfo:
    made = tuple(
        Node(name=f"node{rank}", node_rank=rank, handle=f"h{rank}", address=f"127.1.2.{rank + 1}")
        for rank in range(nodes)
    )
    return ClusterInfo(name="c", engine="local", shape=Shape(nodes=nodes), nodes=made, owner="me")


def result(ranks: int, **more: object) -> Result:
    told = (RankResult(rank=rank, node=f"node{rank}", exit_code=0, duration_s=1 + rank / 100) for rank in range(ranks))
    return Result(verdict="passed", run="r", scenario="s", ranks=tuple(told), **more)  # type: ignore[arg-type]


def test_groups_stand_in_the_order_of_their_first():
    assert group_equal([(0, "a"), (1, "b"), (2, "a")]) == [([0, 2], "a"), ([1], "b")]


def test_of_many_of_one_form_the_first_and_the_last_stand_for_themselves_and_the_odd_one_too():
    groups = [([rank], "nan" if rank == 5 else str(rank)) for rank in range(10)]
    shown = collapse_similar(groups, lambda text: text.isdigit())
    assert [(ranks, thing) for ranks, thing, more in shown if not more] == [
        *(([rank], str(rank)) for rank in range(4)),
        ([5], "nan"),
        ([9], "9"),
    ]
    assert [(ranks, more) for ranks, _, more in shown if more] == [([4, 6, 7, 8], 4)]


def test_nodes_share_a_row_and_one_that_is_dead_has_its_own():
    info = cluster(256)
    nodes = [replace(node, state="dead") if node.node_rank == 9 else node for node in info.nodes]
    memory: dict[str, int | None] = {node.name: 5_000_000 for node in nodes}
    memory |= {"node9": None, "node200": 900_000_000}
    shown = cells(cluster_text(replace(info, nodes=tuple(nodes)), memory, None, None, None, PLAIN))
    assert shown[2:] == [
        [golden(1), "running", "127.1.2.1 to 127.1.2.256", "5 MB to 900 MB"],
        ["node9", "dead", "127.1.2.10", "–"],
        ["256 nodes", "2.17 GB together"],
    ]
    assert node_rows(info) == [("node0-node255", "127.1.2.1 to 127.1.2.256")]
    assert len(node_rows(cluster(16))) == 16


def test_ranks_that_ended_alike_share_a_row_with_the_times_that_they_took():
    whole = result(128)
    ranks = [replace(rank, notes={"sum": 8128, "mine": rank.rank}) for rank in whole.ranks]
    ranks[77] = replace(ranks[77], exit_code=1, error="ValueError: bad")
    ranks[3] = replace(ranks[3], notes={"sum": 8127, "mine": float("nan")})
    shown = cells(result_text(replace(whole, ranks=tuple(ranks)), PLAIN))
    assert ["0-76, 78-127", "node0-node76 and node78-node127", "exit 0", "1 s to 2.27 s"] in shown
    assert ["77", "node77", "exit 1", "1.77 s", "ValueError: bad"] in shown
    assert ["0-2, 4-127", "sum", "8128"] in shown
    assert ["3", "sum", "8127"] in shown
    assert ["3", "mine", "NaN"] in shown
    assert ["127", "mine", "127"] in shown
    assert ["5-126", "mine", golden(1)] in shown


def test_stacks_that_are_alike_are_shown_once_and_the_rarest_first():
    whole = result(40, culprit=Culprit(rank=0))
    stack = 'File "t.py", line {} in f'
    ranks = [replace(rank, stack=stack.format(9 if rank.rank == 30 else 7)) for rank in whole.ranks]
    text = verdict_text(replace(whole, verdict="hung", ranks=tuple(ranks)), PLAIN).splitlines()
    assert text[1] == "  rank 30 on node30:"
    assert text[4] == golden(1)
    assert len(text) == 7


def test_the_last_lines_of_many_ranks_are_told_once_and_those_of_the_odd_one_first(tmp_path: Path):
    ranks = []
    for rank in range(40):
        (tmp_path / f"{rank}.log").write_text("stuck\n" if rank == 30 else f"sum {rank}\n")
        ranks.append(RankResult(rank=rank, node=f"node{rank}", log_path=tmp_path / f"{rank}.log"))
    assert last_lines_text(Result(verdict="failed", ranks=tuple(ranks))).splitlines() == [
        golden(1),
        "  │ stuck",
        golden(2),
        "  │ sum 0",
    ]


def test_of_a_few_ranks_each_has_its_own_lines():
    ranks = tuple(RankResult(rank=rank, node="node0") for rank in range(16))
    shown, left = last_printed(Result(verdict="failed", ranks=ranks), 1, lambda _: ["same"])
    assert ([one.who for one in shown], left) == ([f"rank {rank} on node0" for rank in range(16)], 0)


def test_messages_of_a_ring_share_a_row_and_one_of_another_size_does_not(tmp_path: Path):
    made = TraceMaker(tmp_path / "ring", 32)
    for rank in range(32):
        size = 9 if rank == 20 else 2
        made.call(rank, "send", 1, 2, [[1.0] * size], peer=(rank + 1) % 32, tag=0)
        made.call(rank, "recv", 2, 3, [], [[1.0] * (9 if rank == 21 else 2)], peer=(rank - 1) % 32, tag=0)
    trace = read_trace(made.record())
    steps = match_steps(trace)
    shown = cells(steps_text(trace, steps, PLAIN))
    rows = [row[1] for row in shown[1:4]]
    assert len(shown) == 4 + len(trace.problems)
    assert [row.partition(" x ")[0] for row in rows if " x " in row] != []
    assert [row for row in rows if " x " not in row] == ["send 20 → 21"]
    assert sum(int(row.partition(" x ")[0]) for row in rows if " x " in row) == 31
    traffic = traffic_text("ring", trace, steps, PLAIN).splitlines()
    [row] = [line.split() for line in traffic if line.startswith("20-21 ")]
    assert row.count("36") == 1


def test_rows_of_the_page_are_those_of_ranks_that_are_alike():
    whole = result(40)
    ranks = [replace(rank, notes={"sum": 780}, stack=f"in f, thread {rank.rank}") for rank in whole.ranks]
    ranks[30] = replace(ranks[30], exit_code=1, error="ValueError: bad", notes={"sum": 779}, stack="in g")
    workers = [WorkerPlan(rank=n, local_rank=0, node_rank=n, node=f"node{n}", env={}, argv=()) for n in range(40)]
    others = [*range(30), *range(31, 40)]
    rows = worker_rows(workers, ranks)
    assert [(row["ranks"], row["ended"], row["bad"], row["time"]) for row in rows] == [
        (others, "exit 0", False, "1 s to 1.39 s"),
        ([30], "exit 1", True, "1.3 s"),
    ]
    assert rows[0]["nodes"] == "node0-node29 and node31-node39"
    assert stack_rows(ranks) == [([30], "in g"), (others, "in f, thread 0")]
    assert note_rows(ranks, 100) == [(others, "sum", "780"), ([30], "sum", "779")]
    expected = [Expectation(what="exit", rank=n, expected=0, got=int(n == 30), met=n != 30) for n in range(40)]
    assert [(numbers, one.met) for numbers, one in expectation_rows(expected)] == [(others, True), ([30], False)]


def test_the_matrix_of_many_ranks_adds_neighbours_up(tmp_path: Path):
    made = TraceMaker(tmp_path / "run", 40)
    for rank in range(40):
        made.call(rank, "send", 1, 2, [[1.0] * 2], peer=(rank + 1) % 40, tag=0)
        made.call(rank, "recv", 2, 3, [], [[1.0] * 2], peer=(rank - 1) % 40, tag=0)
    view = matrix_view(match_steps(read_trace(made.record())), range(40))
    assert [name for name, _ in view] == [f"{first}-{first + 3}" for first in range(0, 40, 4)]
    assert view[0][1] == [24, 8, *[0] * 8]
