"""One run from a scenario to a result: plan, record, drive, judge, expect."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from lab.engine.ownership import owner
from lab.engine.protocol import Channel, Engine
from lab.errors import LabError, RecordError
from lab.plan.cluster import ClusterInfo
from lab.plan.plan import Plan
from lab.record.read import Record
from lab.record.result import Expectation, RankResult, Result
from lab.record.write import RecordWriter
from lab.run.drive import Driver
from lab.run.observe import Observer
from lab.run.ship import pack_folder
from lab.spec.dump import dump_scenario
from lab.spec.expressions import RankVariables, rank_variables
from lab.spec.scenario import Expect, Scenario
from lab.verdict.evidence import Evidence
from lab.verdict.expectations import check_expectations
from lab.verdict.facts import RankFacts, RunFacts, begin_facts
from lab.verdict.judge import judge
from lab.verdict.judgement import Judgement
from lab.verdict.stacks import shorten_paths, shorten_stack
from lab.verdict.whole import check_whole_run

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
    """Run a plan on a cluster and judge it.

    Args:
        plan: what to run.
        cluster: where.
        engine: the cluster's.
        channels: to the agents of the nodes that take part.
        writer: the record, new.
        observer: watches.

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
    bare = judge(Evidence(facts=facts, record=Record(path=writer.path)))
    result = _result(plan, cluster, facts, bare, writer)
    writer.finish(result)
    return result


def _result(plan: Plan, cluster: ClusterInfo, facts: RunFacts, bare: Judgement, writer: RecordWriter) -> Result:
    expect = plan.scenario.expect
    ranks = tuple(_rank_result(rank, writer) for rank in facts.ranks)
    expectations: tuple[Expectation, ...] = ()
    if bare.verdict != "error":
        variables = rank_variables(plan.nnodes, plan.nproc_per_node)
        expectations = (
            *check_expectations(expect, ranks, variables),
            *_check_calls(expect, Record(path=writer.path), variables),
            *_check_function(expect.check, facts.check),
            *check_whole_run(expect, bare),
        )
    verdict, reason = _final(bare, expectations, plan.scenario)
    exit_code = 130 if facts.interrupted else 3 if facts.engine_lost else _EXIT_CODES[verdict]
    return Result(
        verdict=verdict,
        reason=reason,
        scenario=plan.scenario.name,
        run=plan.run,
        engine=cluster.engine,
        cluster=cluster.name,
        culprit=bare.culprit,
        ranks=ranks,
        expectations=expectations,
        duration_s=round(facts.duration_s, 6),
        exit_code=exit_code,
        path=writer.path,
    )


def _final(bare: Judgement, expectations: Iterable[Expectation], scenario: Scenario) -> tuple[Any, str]:
    """What becomes of the bare verdict when the scenario's expectations are considered."""
    unmet = [expectation for expectation in expectations if not expectation.met]
    wanted = scenario.expect.verdict
    if bare.verdict == "error" or (bare.verdict != wanted and wanted == "passed"):
        return bare.verdict, bare.reason
    if unmet:
        more = f" (and {len(unmet) - 1} more)" if len(unmet) > 1 else ""
        return "failed", f"{unmet[0].sentence()}{more}"
    if wanted != "passed":
        return "passed", f"{wanted} as expected: {bare.reason}"
    return "passed", bare.reason


def _check_calls(expect: Expect, record: Record, variables: Mapping[int, RankVariables]) -> Iterable[Expectation]:
    if expect.calls is None:
        return ()
    from lab.verdict.calls import check_calls  # not at the start: few scenarios expect calls, and a trace takes a while

    return check_calls(expect, record, variables)


def _check_function(reference: str | None, facts: RankFacts | None) -> tuple[Expectation, ...]:
    if reference is None or facts is None:
        return ()
    met = facts.code == 0 and not facts.error
    got = "it passed" if met else _how_check_ended(facts)
    return (Expectation(what=f"check {reference}", rank=None, expected="it passes", got=got, met=met),)


def _how_check_ended(facts: RankFacts) -> str:
    if facts.error.strip():
        return facts.error.strip().splitlines()[0]
    return f"killed by {facts.signal}" if facts.signal else f"exit code {facts.code}"


def _rank_result(facts: RankFacts, writer: RecordWriter) -> RankResult:
    over = facts.ended is not None and facts.started is not None
    error = facts.error.strip().splitlines()[0] if facts.error.strip() else ""
    if facts.out_of_memory:
        error = "killed for want of memory"
    elif facts.node_lost:
        error = "its node went away"
    return RankResult(
        rank=facts.rank,
        node=facts.node,
        local_rank=facts.local_rank,
        exit_code=None if facts.stopped else facts.code,
        signal=facts.signal,
        stopped=facts.stopped,
        error=error,
        traceback=shorten_paths(facts.traceback),
        stack=shorten_stack(facts.stack),
        notes=dict(facts.notes),
        duration_s=round(facts.ended - facts.started, 6) if over and facts.ended and facts.started else None,
        log_path=writer.log_path(facts.rank),
    )


def _plain(result: RankResult) -> dict[str, Any]:
    data = asdict(replace(result, log_path=None))
    data["log"] = result.log[-65536:]
    return data


def crash_result(plan: Plan, cluster: ClusterInfo, writer: RecordWriter, error: LabError) -> Result:
    """The result of a run that could not begin.

    Raises:
        RecordError: it cannot be written.
    """
    result = Result(
        verdict="error",
        reason=error.message,
        scenario=plan.scenario.name,
        run=plan.run,
        engine=cluster.engine,
        cluster=cluster.name,
        exit_code=error.exit_code,
        path=writer.path,
    )
    try:
        writer.finish(result)
    except RecordError:
        writer.close()
        raise
    return result
