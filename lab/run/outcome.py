"""Judge a run: collect its facts, compare them with the expectations, and write the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.diagnosis.evidence import Evidence, Judgement
from lab.diagnosis.expectations import apply_expectations
from lab.diagnosis.facts import RankFacts, RunFacts
from lab.diagnosis.judge import judge_evidence
from lab.errors import LabError
from lab.feature import find_hook
from lab.plan.plan import Plan
from lab.record.read import Record, Started
from lab.record.result import Attempt, RankResult, RecordedFinding, Result
from lab.record.write import LATEST, RecordWriter
from lab.run.ship import Outputs
from lab.spec.expressions import RankVariables, rank_variables

if TYPE_CHECKING:
    from lab.run.options import Job

EXIT_CODES = {"passed": 0, "failed": 1, "error": 1, "hung": 4, "timeout": 4}


def judge_run(job: Job, facts: RunFacts, outputs: Outputs) -> Result:
    """Judge a run that has ended, and write the result into its record.

    Raises:
        RecordError: the result cannot be written.
    """
    plan, writer = job.plan, job.writer
    earlier = [_judge_earlier(job, facts, number) for number in range(len(facts.earlier))]
    writer.flush()
    find_started = find_hook("find_started") if facts.joined else None
    started: Started | None = find_started(facts, Record(path=writer.path)) if find_started else None
    if started is not None:  # processes that scripts started are the ranks of the run
        writer.assign_ranks(started)
        facts.assign_started_ranks(started)
    copy_sources(facts, writer, plan.scenario.shipped, job.options.modules)
    evidence = Evidence(facts=facts, record=Record(path=writer.path))
    ranks, parents = (tuple(rank_result(rank, writer) for rank in of) for of in (facts.ranks, facts.parents))
    variables = _variables(plan, facts, started)
    expect = plan.scenario.expect
    of_features = [
        judge_stated(stated, job, evidence, variables)
        for name, stated in expect.extra.items()
        if (judge_stated := find_hook(f"expect.{name}"))
    ]
    bare, attempts = judge_evidence(evidence), tuple[Attempt, ...]()
    if earlier:
        attempts = (*earlier, _attempt(bare, facts, len(earlier), writer))
        with_attempts = find_hook("with_attempts")
        bare = with_attempts(bare, attempts, facts, plan.launcher.max_restarts) if with_attempts else bare
    reports = [companion.report_results(evidence.record, expect) for companion in job.companions]
    of_companions = [expectation for _, expectations in reports for expectation in expectations]
    judgement, expectations = apply_expectations(
        bare, expect, evidence, (*parents, *ranks), variables, of_features, attempts, of_companions
    )
    is_interrupted = facts.interrupted or outputs.is_interrupted
    result = Result(
        **_describe(job),
        **describe_judgement(judgement, facts),
        ranks=ranks,
        parents=parents,
        expectations=expectations,
        faults=tuple(fault for faults, _ in reports for fault in faults),
        outputs=tuple(outputs.fetched),
        outputs_left_out=tuple(outputs.left_out),
        outputs_folder=outputs.folder if outputs.fetched else None,
        attempts=attempts,
        exit_code=130 if is_interrupted else 3 if facts.engine_lost else EXIT_CODES[judgement.verdict],
    )
    writer.finish(result)
    return result


def _judge_earlier(job: Job, facts: RunFacts, number: int) -> Attempt:
    """Judge an attempt before the last one, and write the result into its record."""
    writer = job.writer
    writer.flush(attempt=number)
    own = facts.attempt(number)
    copy_sources(own, writer, job.plan.scenario.shipped, job.options.modules, number)
    record = Record(path=writer.attempts[number].path)
    judgement = judge_evidence(Evidence(facts=own, record=record))
    result = Result(
        **{**_describe(job), "run": record.run, "path": record.path},
        **describe_judgement(judgement, own),
        ranks=tuple(rank_result(rank, writer, number) for rank in own.ranks),
        exit_code=EXIT_CODES[judgement.verdict],
    )
    writer.write_result(result, number)
    return _attempt(judgement, own, number, writer)


def describe_judgement(judgement: Judgement, facts: RunFacts) -> dict[str, Any]:
    """Return the fields of a result that come from the judgement of its facts."""
    return {
        **{name: getattr(judgement, name) for name in ("verdict", "reason", "culprit")},
        "findings": tuple(RecordedFinding(finding.to_json()) for finding in judgement.findings),
        "duration_s": round(facts.duration_s, 6),
    }


def _attempt(judgement: Judgement, facts: RunFacts, number: int, writer: RecordWriter) -> Attempt:
    times = [time for rank in facts.ranks for time in (rank.started, rank.ended) if time is not None]
    return Attempt(
        **{name: getattr(judgement, name) for name in ("verdict", "reason", "culprit", "summary")},
        number=number,
        nodes=tuple(rank.node for rank in facts.ranks),
        duration_s=round(max(times) - min(times), 6) if times else None,
        path=writer.attempts[number].path,
    )


def _variables(plan: Plan, facts: RunFacts, started: Started | None) -> dict[int, RankVariables]:
    """Return the variables that expressions may use, by rank.

    A launcher may start fewer or more ranks than planned. For a rank that a script started, the launcher reports no
    position.
    """
    nnodes = plan.nnodes
    if facts.met and len(facts.ranks) != plan.world_size:
        nnodes = len(facts.ranks) // plan.nproc_per_node
    variables = rank_variables(nnodes, plan.nproc_per_node)
    if started is not None:
        known = variables[0]._replace(world_size=started.world_size)
        of_scripts = (one.rank for one in facts.ranks if one.parent is not None)
        variables |= {rank: known._replace(rank=rank, local_rank=rank) for rank in of_scripts}
    return variables


def results_for_check(facts: RunFacts, writer: RecordWriter) -> list[dict[str, Any]]:
    """Return the result of each rank, with the end of its log, for the scenario's own check."""
    results = [rank_result(rank, writer) for rank in facts.ranks]
    return [{**asdict(replace(result, log_path=None)), "log": result.log[-65536:]} for result in results]


def _describe(job: Job) -> dict[str, Any]:
    """Return the fields of a result that are known before the run begins."""
    plan, cluster = job.plan, job.cluster
    names = {"scenario": plan.scenario.name, "run": plan.run, "engine": cluster.engine, "cluster": cluster.name}
    return {**names, "path": job.writer.path}


def copy_sources(
    facts: RunFacts, writer: RecordWriter, folder: Path, modules: Mapping[str, Path] | None, attempt: int = LATEST
) -> None:
    """Copy the scripts that stacks and tracebacks name into the record."""
    if texts := "\n".join(text for rank in facts.ranks for text in (rank.stack, rank.traceback) if text):
        from lab.diagnosis.stacks import script_files

        for name in script_files(texts):
            writer.copy_source(folder, name, modules or {}, attempt)


def rank_result(facts: RankFacts, writer: RecordWriter, attempt: int = LATEST) -> RankResult:
    """Return the result of a rank, with short paths in its texts."""
    error = facts.error.strip().splitlines()[0] if facts.error.strip() else ""
    if facts.out_of_memory:
        error = "killed: out of memory"
    elif facts.node_lost:
        error = "its node was lost"
    traceback, stack = facts.traceback, facts.stack
    if traceback or stack:
        from lab.diagnosis.stacks import shorten_paths, shorten_stack

        traceback, stack = shorten_paths(traceback), shorten_stack(stack)
    return RankResult(
        **{name: getattr(facts, name) for name in ("rank", "node", "local_rank", "signal", "stopped", "parent")},
        exit_code=None if facts.stopped else facts.code,
        error=error,
        traceback=traceback,
        stack=stack,
        notes=dict(facts.notes),
        duration_s=round(facts.ended - facts.started, 6) if facts.ended and facts.started else None,
        log_path=writer.log_path(facts.rank if facts.parent is None else facts.parent, attempt),
    )


def crash_result(job: Job, error: LabError) -> None:
    """Write the result of a run that could not begin.

    Raises:
        RecordError: it cannot be written.
    """
    job.writer.finish(Result(**_describe(job), verdict="error", reason=error.message, exit_code=error.exit_code))
