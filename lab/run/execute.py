"""One run from a scenario to a result: plan, record, drive, judge, expect."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lab.engine.ownership import owner
from lab.engine.protocol import Channel, Engine
from lab.errors import LabError
from lab.plan.cluster import ClusterInfo
from lab.plan.plan import Plan
from lab.record.read import Record
from lab.record.result import RankResult, Result
from lab.record.write import RecordWriter
from lab.run.drive import Driver
from lab.run.observe import Observer
from lab.run.ship import pack_folder
from lab.spec.expressions import rank_variables
from lab.spec.load import dump_scenario
from lab.verdict.evidence import Evidence
from lab.verdict.expectations import settle
from lab.verdict.facts import RankFacts, RunFacts, begin_facts
from lab.verdict.judge import judge

_CHECK_DEADLINE_S = 60.0
_EXIT_CODES = {"passed": 0, "failed": 1, "error": 1, "hung": 4}


def execute(
    plan: Plan,
    cluster: ClusterInfo,
    engine: Engine,
    channels: list[Channel],
    writer: RecordWriter,
    observer: Observer,
) -> Result:
    """Run a plan on a cluster, through channels to the agents of the nodes that take part, and judge it.

    Raises:
        LabError: the run could not begin, or its record could not be written; a run that began has a result.
    """
    scenario, memory_bytes = plan.scenario, cluster.shape.memory_bytes
    archive = pack_folder(scenario.script.parent)
    writer.describe(
        dump_scenario(scenario),
        scenario.script,
        {
            **plan.to_json(),
            "engine": cluster.engine,
            "cluster": cluster.name,
            "memory_bytes": memory_bytes,
            "began": time.time(),
        },
    )
    facts = begin_facts(plan, memory_bytes)
    driver = Driver(plan, engine, channels, writer, observer, owner=owner(), facts=facts)

    def run_check(facts: RunFacts) -> None:
        if scenario.expect.check:
            results = [_rank_result(rank, writer) for rank in facts.ranks]
            driver.check(scenario.expect.check, [_plain(result) for result in results], _CHECK_DEADLINE_S)

    try:
        driver.drive(archive, afterwards=run_check)
    except BaseException:
        writer.close()
        raise
    _keep_sources(facts, scenario.script.parent, writer)
    result = _result(plan, cluster, Evidence(facts=facts, record=Record(path=writer.path)), writer)
    writer.finish(result)
    return result


def _result(plan: Plan, cluster: ClusterInfo, evidence: Evidence, writer: RecordWriter) -> Result:
    facts = evidence.facts
    ranks = tuple(_rank_result(rank, writer) for rank in facts.ranks)
    variables = rank_variables(plan.nnodes, plan.nproc_per_node)
    judgement, expectations = settle(judge(evidence), plan.scenario.expect, evidence, ranks, variables)
    exit_code = 130 if facts.interrupted else 3 if facts.engine_lost else _EXIT_CODES[judgement.verdict]
    return Result(
        **_place(plan, cluster, writer),
        verdict=judgement.verdict,
        reason=judgement.reason,
        culprit=judgement.culprit,
        ranks=ranks,
        expectations=expectations,
        duration_s=round(facts.duration_s, 6),
        exit_code=exit_code,
    )


def _place(plan: Plan, cluster: ClusterInfo, writer: RecordWriter) -> dict[str, Any]:
    """What of a result is known before the run begins."""
    names = {"scenario": plan.scenario.name, "run": plan.run, "engine": cluster.engine, "cluster": cluster.name}
    return {**names, "path": writer.path}


def _keep_sources(facts: RunFacts, folder: Path, writer: RecordWriter) -> None:
    told = "\n".join(text for rank in facts.ranks for text in (rank.stack, rank.traceback) if text)
    if told:
        from lab.verdict.stacks import script_files

        for name in script_files(told):
            writer.keep(folder, name)


def _rank_result(facts: RankFacts, writer: RecordWriter) -> RankResult:
    over = facts.ended is not None and facts.started is not None
    error = facts.error.strip().splitlines()[0] if facts.error.strip() else ""
    if facts.out_of_memory:
        error = "killed for lack of memory"
    elif facts.node_lost:
        error = "its node went away"
    traceback, stack = facts.traceback, facts.stack
    if traceback or stack:
        from lab.verdict.stacks import shorten_paths, shorten_stack

        traceback, stack = shorten_paths(traceback), shorten_stack(stack)
    return RankResult(
        rank=facts.rank,
        node=facts.node,
        local_rank=facts.local_rank,
        exit_code=None if facts.stopped else facts.code,
        signal=facts.signal,
        stopped=facts.stopped,
        error=error,
        traceback=traceback,
        stack=stack,
        notes=dict(facts.notes),
        duration_s=round(facts.ended - facts.started, 6) if over and facts.ended and facts.started else None,
        log_path=writer.log_path(facts.rank),
    )


def _plain(result: RankResult) -> dict[str, Any]:
    data = asdict(replace(result, log_path=None))
    data["log"] = result.log[-65536:]
    return data


def crash_result(plan: Plan, cluster: ClusterInfo, writer: RecordWriter, error: LabError) -> None:
    """Write the result of a run that could not begin.

    Raises:
        RecordError: it cannot be written.
    """
    known = _place(plan, cluster, writer)
    writer.finish(Result(**known, verdict="error", reason=error.message, exit_code=error.exit_code))
