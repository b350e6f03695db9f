"""Cases and outcomes as a suite has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.features.suite.cases import Case, Outcome, SuiteResult
from lab.plan.cluster import Shape
from lab.record.result import Culprit, RankResult, Result
from lab.run.cluster_slot import RunAttempt
from lab.spec.scenario import Expect, Scenario


def scenario(name: str = "train", **more: Any) -> Scenario:
    return Scenario(name=name, script=Path("/s/train.py"), **{"expect": Expect(), **more})


def case(name: str = "train", nodes: int = 2, **more: Any) -> Case:
    shape = more.pop("shape", Shape(nodes=nodes))
    return Case(name=name, scenario=scenario(name), nodes=nodes, nproc_per_node=1, shape=shape, **more)


def attempt(verdict: str = "passed", reason: str = "", **more: Any) -> RunAttempt:
    code = {"passed": 0, "failed": 1, "hung": 4, "error": 1}[verdict]
    hint, took_s = more.pop("hint", ""), more.pop("took_s", 1.5)
    known = {"verdict": verdict, "reason": reason, "exit_code": code, "scenario": "train", **more}
    return RunAttempt(result=Result(**known), error=LabError(reason, hint) if hint else None, took_s=took_s)


def outcome(*attempts: RunAttempt, **more: Any) -> Outcome:
    return Outcome(case=case(**more), attempts=attempts)


def culprit(**more: Any) -> Culprit:
    return Culprit(
        **{"rank": 1, "node": "node1", "error": "raised ValueError: x", "traceback": "ValueError: x", **more}
    )


def suite(*outcomes: Outcome, planned: int | None = None, **more: Any) -> SuiteResult:
    return SuiteResult(suite="s-1", outcomes=outcomes, planned=len(outcomes) if planned is None else planned, **more)


def rank_with_log(path: Path, text: str, rank: int = 0) -> RankResult:
    path.write_text(text)
    return RankResult(rank=rank, node=f"node{rank}", exit_code=0, log_path=path)
