"""Run every submission as a scenario's script, on clusters that no submission can change for the next one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from lab.diagnosis.facts import RunFacts, read_facts
from lab.diagnosis.reasons import render_left_out
from lab.engine.protocol import Engine
from lab.engine.select import AUTO, OPENERS, select_engine
from lab.errors import EngineUnavailable, Interrupted, LabError, UsageError
from lab.feature import find_hook
from lab.features.grade import grades, submissions
from lab.features.grade.grades import Grade, Grades
from lab.features.grade.keys import scenario_grading
from lab.features.suite.pool import WorkerPool, hold_warm_cluster
from lab.plan.cluster import Shape
from lab.plan.limits import limits_for
from lab.plan.plan import shape_for
from lab.record.read import Record
from lab.record.result import Result
from lab.run.cluster_slot import ClusterSlot, WarmCluster, refuse_absent_image
from lab.run.options import RunOptions
from lab.run.snapshot import read_snapshot
from lab.spec.kinds import make_slug
from lab.spec.load import KEY, load_scenario, resolve_lesson
from lab.spec.reading import names_in
from lab.spec.scenario import Resources, Scenario
from lab.words import join_words

_ATTEMPTS = 2
"""The number of times the lab tries to run a submission before it leaves the submission ungraded."""
_LEAST_CPUS = 0.1
_OF_CLUSTER: dict[str, Any] = {"source": None, "image": None, "data": {}, "volumes": (), "resources": Resources()}
"""The cluster provides what the assignment asks for; a submission asks for nothing."""


@dataclass
class Grader:
    """Grade submissions on several clusters at once, which share the machine; no submission affects the next one.

    Raises:
        UsageError: There is nothing to grade, or the engine does not isolate untrusted scripts.
        ScenarioError: The assignment is not valid.
        EngineUnavailable: No usable engine answers.
    """

    folder: Path
    """Folder of the submissions."""
    scenario_file: Path | None
    """The file of the assignment; None if it is in the folder of the submissions."""
    engine_name: str
    """Name of an engine; `auto` is the first of all, which is Docker."""
    trust: bool
    """Grade without isolation, on any engine; otherwise clusters isolate submissions."""
    requested: Mapping[str, Any]
    """Requested fields of the clusters' shape."""
    options: RunOptions
    jobs: int
    """Number of clusters that grade at the same time."""
    announce: Callable[[str], object]
    """Called with each line of progress."""
    on_graded: Callable[[Grade, int, int], object]
    """Called with each grade, the number of grades so far, and the number of submissions."""

    def __post_init__(self) -> None:
        if not self.folder.is_dir():
            raise UsageError(f"{self.folder} is not a folder", "name the folder with the submissions")
        assignment = find_assignment(self.folder, self.scenario_file)
        folder, check = assignment.script.parent, assignment.expect.check
        named_files = [*scenario_grading(assignment).files, *([check.partition(":")[0]] if check else [])]
        files = [assignment.script, assignment.source, *(folder / name for name in named_files)]
        self.submissions = submissions.find_submissions(self.folder, [file for file in files if file is not None])
        self.engine = open_isolating_engine(self.engine_name, assignment, trust=self.trust)
        if not self.options.pull and not self.requested.get("image"):
            refuse_absent_image(assignment, self.engine)
        if with_stated_calls := find_hook("with_stated_calls"):
            assignment = with_stated_calls(assignment, *self.options.size_of_run(assignment, Shape(nodes=1)))
        self.assignment, self.options = assignment, replace(self.options, fresh=True)
        if check:  # the check sees a submission only in the folders of its ranks
            check_folder = read_snapshot(folder, [one.path for one in self.submissions])
            self.options = replace(self.options, check_folder=check_folder)
        self._waiting = list(self.submissions)
        self._pool = WorkerPool()
        self._grades: dict[str, Grade] = {}
        self._failure: LabError | None = None

    def grade(self) -> tuple[Grades, LabError | None]:
        """Grade all submissions; return their grades in order, and the error that kept the rest from being graded."""
        start_s = time.monotonic()
        prefix = f"grade-{os.getpid():x}-{os.urandom(2).hex()}"
        names = [f"{prefix}-{number}" for number in range(min(self.jobs, len(self.submissions)))]
        try:
            self._pool.run([partial(self._grade_submissions, name) for name in names], interrupted=self._interrupted)
        except LabError as error:
            self._failure = self._failure or error
        results = Grades(
            scenario=self.assignment.name,
            engine=self.engine.name,
            isolation=Grades.TRUSTED if self.trust else Grades.UNTRUSTED,
            grades=tuple(self._grades[one.name] for one in self.submissions if one.name in self._grades),
            duration_s=time.monotonic() - start_s,
        )
        return results, self._failure

    def _interrupted(self) -> None:
        self._failure = Interrupted(f"interrupted after {len(self._grades)} of {len(self.submissions)} submissions")

    def _grade_submissions(self, name: str) -> None:
        """Grade submissions until none is left."""
        slot = ClusterSlot(engine=self.engine, name=name, asked={}, announce=self._announce)
        with hold_warm_cluster(slot, self._shape(), "grading", "grading") as warm_cluster:
            while (submission := self._next_submission()) is not None:
                grade = self._grade(submission, warm_cluster)
                with self._pool.turn:
                    self._grades[submission.name] = grade
                    self.on_graded(grade, len(self._grades), len(self.submissions))

    def _announce(self, text: str) -> None:
        with self._pool.turn:
            self.announce(text)

    def _next_submission(self) -> submissions.Submission | None:
        with self._pool.turn:
            return self._waiting.pop(0) if self._waiting and not self._pool.stopping else None

    def _shape(self) -> Shape:
        """Return the shape of each cluster; a strict cluster has limits, so that it takes nothing from the others."""
        shape = replace(shape_for(self.assignment, self.options, self.requested), strict=not self.trust)
        if self.trust:
            return shape
        machine = self.engine.machine()
        limits = limits_for(shape.nodes * self.jobs, shape.limits, machine, strict=True)
        share = max(_LEAST_CPUS, round(machine.cores / self.jobs / shape.nodes, 2))
        cpus = shape.cpus or (share if self.jobs > 1 else float(machine.cores))
        return replace(shape, memory_bytes=limits.memory_bytes, cpus=cpus)

    def _grade(self, submission: submissions.Submission, warm_cluster: WarmCluster) -> Grade:
        assignment = self.assignment
        with ExitStack() as stack:
            try:
                script, messages = stack.enter_context(submissions.stage_submission(submission, assignment))
            except UsageError as error:  # the author's fault
                return grades.grade_without_run(submission.name, error.message, assignment, "failed")
            extra = {name: value for name, value in assignment.extra.items() if name != KEY}
            scenario = replace(
                assignment, name=make_slug(submission.name), script=script, folder=None, extra=extra, **_OF_CLUSTER
            )
            scenario = replace(scenario, outputs=assignment.outputs or None)
            outcome = self._run(scenario, warm_cluster)
        if isinstance(outcome, LabError):
            return grades.grade_without_run(submission.name, outcome.message, assignment, "error")
        result, facts = outcome
        # The agent makes sure that a run leaves its node clean. Grading does not rely on it if a rank did not end by
        # itself or reached a limit.
        if any(rank.exit_code is None for rank in result.ranks) or facts.limits or grades.explain_forfeit(facts):
            warm_cluster.clear()
            if self._waiting:  # the next submission does not wait for a new cluster
                with suppress(LabError):  # the next submission tries again
                    warm_cluster.ensure_ready()
        left_out = render_left_out(facts.staged)
        messages = (*messages, f"{left_out}: it reads regular files within limits") if left_out else messages
        return grades.grade_run(submission.name, result, facts, assignment, messages)

    def _run(self, scenario: Scenario, warm_cluster: WarmCluster) -> tuple[Result, RunFacts] | LabError:
        """Run a submission; repeat it once on other nodes if the lab failed, or if its end or check was interrupted."""
        outcome: tuple[Result, RunFacts] | LabError = LabError("it did not run")
        for _ in range(_ATTEMPTS):
            try:
                attempt = warm_cluster.attempt(scenario, self.options, self._pool)
                result = attempt.complete()
                if result.exit_code == Interrupted.exit_code:
                    raise KeyboardInterrupt
                if warm_cluster.is_last(attempt):
                    raise EngineUnavailable(result.reason)
                if result.verdict == "error" or result.path is None:
                    raise LabError(result.reason)
                facts = read_facts(Record(path=result.path))
                outcome = result, facts
                if not grades.find_unreported_ranks(facts) and not grades.was_check_interrupted(facts):
                    break
            except (EngineUnavailable, Interrupted):
                raise
            except LabError as error:
                outcome = error
            warm_cluster.clear()
        return outcome


_WHY_DOCKER = "it isolates submissions from this machine and from each other"


def find_assignment(folder: Path, scenario_file: Path | None) -> Scenario:
    """Load the scenario that was named, or else the one in the folder of the submissions.

    Raises:
        UsageError: The folder has no scenario, or several.
        ScenarioError: The scenario is not valid.
    """
    if scenario_file is not None:
        return load_scenario(resolve_lesson(scenario_file))
    names = names_in(folder, ".yaml", ".yml")
    if len(names) != 1:
        contents = f"has {join_words(names)}" if names else "has no scenario"
        raise UsageError(f"{folder} {contents}", "name the assignment with --scenario")
    return load_scenario(folder / names[0])


def open_isolating_engine(engine_name: str, assignment: Scenario, *, trust: bool) -> Engine:
    """Open the engine on which untrusted scripts are graded.

    Raises:
        UsageError: The engine does not isolate them, or the assignment would mount folders in its nodes.
        EngineUnavailable: The engine does not answer.
    """
    mounted = [*assignment.data, *(volume.target for volume in assignment.volumes)]
    if mounted and not trust:
        raise UsageError(
            f"{assignment.name} mounts {join_words(mounted)}, but nodes for grading mount no folder of this machine",
            "name the files in `grade: files:`; if you trust every submission, use --trust",
        )
    strict_engine = next(iter(OPENERS))
    engine_name = strict_engine if engine_name == AUTO and not trust else engine_name
    try:
        engine = select_engine(engine_name)[0]
    except EngineUnavailable as error:
        if trust or engine_name != strict_engine:
            raise
        raise EngineUnavailable(f"{error.message}; grading needs {strict_engine}: {_WHY_DOCKER}", error.hint) from error
    if not trust and not engine.traits.isolates:
        raise UsageError(
            f"grading needs the {strict_engine} engine: {_WHY_DOCKER}",
            f"--trust grades on the {engine.name} engine, and says so in each result",
        )
    return engine
