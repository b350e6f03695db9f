"""How the verdict names the rank that failed first."""

from __future__ import annotations

import pytest

from lab.record.result import Culprit, RankResult, RecordedFinding, Result
from lab.report.verdict import name_culprit
from tests.golden import golden


@pytest.mark.parametrize(("alike", "is_shared"), [((1, 2), True), ((2,), False), ((), False)])
def test_only_a_failure_of_some_ranks_has_a_culprit(alike: tuple[int, ...], is_shared: bool) -> None:
    ranks = tuple(RankResult(rank=rank, node=f"node{rank}", local_rank=0) for rank in range(3))
    findings = (RecordedFinding(facts={"alike": alike}),)
    culprit = Culprit(rank=0, node="node0", error="raised ValueError: no")
    result = Result(
        scenario="s", run="r", path=None, engine="local", cluster="c", verdict="failed", reason="", ranks=ranks,
        findings=findings, culprit=culprit, exit_code=1,
    )  # fmt: skip

    assert name_culprit(result) == (golden(1) if is_shared else golden(2))


@pytest.mark.parametrize("finding", [{}, {"facts": "x"}, {"facts": {"alike": 2}}])
def test_a_damaged_finding_hides_no_culprit(finding: dict[str, object]) -> None:
    ranks = tuple(RankResult(rank=rank, node="node0", local_rank=0) for rank in range(3))
    culprit = Culprit(rank=1, error="raised")
    result = Result(
        verdict="failed", reason="", scenario="s", culprit=culprit, ranks=ranks, findings=(RecordedFinding(finding),)
    )
    assert name_culprit(result).endswith(culprit.who)
