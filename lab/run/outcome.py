"""What came out of a run: its facts judged, compared with what was expected, put into a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.diagnosis.evidence import Evidence, Judgement
from lab.diagnosis.expectations import settle
from lab.diagnosis.facts import RankFacts, RunFacts
from lab.diagnosis.judge import judge
from lab.errors import LabError
from lab.feature import hook
from lab.plan.cluster import ClusterInfo
from lab.plan.plan import Plan
from lab.record.read import Record
from lab.record.result import Attempt, Expectation, RankResult, Result
from lab.record.write import LATEST, RecordWriter
from lab.run.ship import Outputs
from lab.spec.expressions import RankVariables, rank_variables

if TYPE_CHECKING:
    from lab.record.read import Started
    from lab.run.companion import Companion

_EXIT_CODES = {"passed": 0, "failed": 1, "error": 1, "hung": 4}


def outcome(
    plan: Plan,
    cluster: ClusterInfo,
    facts: RunFacts,
    writer: RecordWriter,
    outputs: Outputs,
    update: bool | None = None,
    companions: Sequence[Companion] = (),
) -> Result:
    """The result of a run that is over, which is written into its record.

    Raises:
        RecordError: it cannot be written.
    """
    earlier = tuple(_earlier(plan, cluster, facts, writer, number) for number in range(len(facts.earlier)))
    writer.settle()
    started = _place_started(facts, writer)
    _keep_sources(facts, plan.scenario.script.parent, writer)
    evidence = Evidence(facts=facts, record=Record(path=writer.path))
    ranks = tuple(_rank_result(rank, writer) for rank in facts.ranks)
    variables = _variables(plan, facts)
    parents = tuple(_rank_result(rank, writer) for rank in facts.parents)
    if started is not None:
        variables |= {rank.rank: _of_started(rank, started, variables) for rank in ranks if rank.parent is not None}
    expect = plan.scenario.expect
    of_features = [
        judge_stated(stated, plan, evidence, variables, update)
        for name, stated in expect.extra.items()
        if (judge_stated := hook(f"expect.{name}"))
    ]
    bare, attempts = judge(evidence), tuple[Attempt, ...]()
    if earlier:
        attempts = (*earlier, _attempt(bare, facts, len(earlier), writer))
        with_attempts = hook("with_attempts")
        bare = with_attempts(bare, attempts, facts, plan.launcher.max_restarts) if with_attempts else bare
    told, others = list[Mapping[str, Any]](), list[Expectation]()
    for companion in companions:
        tells, expects = companion.told(evidence.record, expect)
        told += tells
        others += expects
    everybody = (*parents, *ranks)
    judgement, expectations = settle(bare, expect, evidence, everybody, variables, of_features, attempts, others)
    result = Result(
        **_place(plan, cluster, writer),
        **_judged(judgement, facts),
        ranks=ranks,
        parents=parents,
        expectations=expectations,
        faults=tuple(told),
        outputs=tuple(outputs.brought),
        outputs_left_out=tuple(outputs.left_out),
        outputs_folder=outputs.folder if outputs.brought else None,
        attempts=attempts,
        exit_code=130 if facts.interrupted else 3 if facts.engine_lost else _EXIT_CODES[judgement.verdict],
    )
    writer.finish(result)
    return result


def _earlier(plan: Plan, cluster: ClusterInfo, facts: RunFacts, writer: RecordWriter, number: int) -> Attempt:
    """An attempt before the last one, whose result is written into its record."""
    writer.settle(attempt=number)
    mine = facts.attempt(number)
    _keep_sources(mine, plan.scenario.script.parent, writer, number)
    record = Record(path=writer.attempts[number].path)
    judgement = judge(Evidence(facts=mine, record=record))
    result = Result(
        **{**_place(plan, cluster, writer), "run": record.run, "path": record.path},
        **_judged(judgement, mine),
        ranks=tuple(_rank_result(rank, writer, number) for rank in mine.ranks),
        exit_code=_EXIT_CODES[judgement.verdict],
    )
    writer.write_result(result, number)
    return _attempt(judgement, mine, number, writer)


def _judged(judgement: Judgement, facts: RunFacts) -> dict[str, Any]:
    """What of a result is the judgement of its facts."""
    return {
        **{name: getattr(judgement, name) for name in ("verdict", "reason", "culprit")},
        "findings": tuple(finding.to_json() for finding in judgement.findings),
        "duration_s": round(facts.duration_s, 6),
    }


def _attempt(judgement: Judgement, facts: RunFacts, number: int, writer: RecordWriter) -> Attempt:
    times = [time for rank in facts.ranks for time in (rank.started, rank.ended) if time is not None]
    return Attempt(
        number=number,
        verdict=judgement.verdict,
        reason=judgement.reason,
        culprit=judgement.culprit,
        summary=judgement.summary,
        nodes=tuple(rank.node for rank in facts.ranks),
        duration_s=round(max(times) - min(times), 6) if times else None,
        path=writer.attempts[number].path,
    )


def _variables(plan: Plan, facts: RunFacts) -> dict[int, RankVariables]:
    """Those of the ranks that there were: a launcher may have met with fewer or more than were planned."""
    if not facts.met or len(facts.ranks) == plan.world_size:
        return rank_variables(plan.nnodes, plan.nproc_per_node)
    return rank_variables(len(facts.ranks) // plan.nproc_per_node, plan.nproc_per_node)


def _place_started(facts: RunFacts, writer: RecordWriter) -> Started | None:
    """Have the processes that scripts started be the ranks, where they are; None where there were none of those."""
    find_started = hook("find_started") if facts.joined else None
    started: Started | None = find_started(facts, Record(path=writer.path)) if find_started else None
    if started is not None:
        writer.place(started)
        facts.place_started(started)
    return started


def _of_started(rank: RankResult, started: Started, variables: Mapping[int, RankVariables]) -> RankVariables:
    """What expressions may use for a rank that a script started, of which no launcher has said anything else."""
    known = next(iter(variables.values()))
    return known._replace(rank=rank.rank, local_rank=rank.rank, world_size=started.world_size)


def results_for_check(facts: RunFacts, writer: RecordWriter) -> list[dict[str, Any]]:
    """What a scenario's own check is given of each rank, with the end of its log."""
    results = [_rank_result(rank, writer) for rank in facts.ranks]
    return [{**asdict(replace(result, log_path=None)), "log": result.log[-65536:]} for result in results]


def _place(plan: Plan, cluster: ClusterInfo, writer: RecordWriter) -> dict[str, Any]:
    """What of a result is known before the run begins."""
    names = {"scenario": plan.scenario.name, "run": plan.run, "engine": cluster.engine, "cluster": cluster.name}
    return {**names, "path": writer.path}


def _keep_sources(facts: RunFacts, folder: Path, writer: RecordWriter, attempt: int = LATEST) -> None:
    told = "\n".join(text for rank in facts.ranks for text in (rank.stack, rank.traceback) if text)
    if told:
        from lab.diagnosis.stacks import script_files

        for name in script_files(told):
            writer.keep(folder, name, attempt)


def _rank_result(facts: RankFacts, writer: RecordWriter, attempt: int = LATEST) -> RankResult:
    over = facts.ended is not None and facts.started is not None
    error = facts.error.strip().splitlines()[0] if facts.error.strip() else ""
    if facts.out_of_memory:
        error = "killed for lack of memory"
    elif facts.node_lost:
        error = "its node went away"
    traceback, stack = facts.traceback, facts.stack
    if traceback or stack:
        from lab.diagnosis.stacks import shorten_paths, shorten_stack

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
        log_path=writer.log_path(facts.rank if facts.parent is None else facts.parent, attempt),
        parent=facts.parent,
    )


def crash_result(plan: Plan, cluster: ClusterInfo, writer: RecordWriter, error: LabError) -> None:
    """Write the result of a run that could not begin.

    Raises:
        RecordError: it cannot be written.
    """
    known = _place(plan, cluster, writer)
    writer.finish(Result(**known, verdict="error", reason=error.message, exit_code=error.exit_code))
