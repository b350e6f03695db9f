"""Runs every submission in the place of a scenario's script, on clusters that no submission can spoil for the next."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
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
from lab.features.grade.grades import Grade, Grades, broke_off, forfeited, grade_of, unheard_of, without_run
from lab.features.grade.keys import grading_of
from lab.features.grade.submissions import Room, Submission, find_submissions, own_folder, staged, unzip
from lab.plan.cluster import Shape
from lab.plan.limits import limits_for
from lab.plan.plan import shape_for
from lab.record.read import Record
from lab.record.result import Result
from lab.run.cluster_slot import ClusterSlot, WarmCluster, refuse_absent_image
from lab.run.options import RunOptions
from lab.run.pool import WorkerPool, hold_warm_cluster
from lab.run.ship import pack_folder
from lab.spec.kinds import make_slug
from lab.spec.load import KEY, load_scenario, resolve_lesson
from lab.spec.reading import names_in
from lab.spec.scenario import Resources, Scenario
from lab.words import join_words

_ATTEMPTS = 2
"""So often a submission is run that the lab could not run: then it is not graded."""
_LEAST_CPUS = 0.1
_OF_THE_CLUSTER: dict[str, Any] = {"source": None, "image": None, "data": {}, "volumes": (), "resources": Resources()}
"""The cluster has what the assignment wishes for; a submission wishes for nothing."""


@dataclass
class Grader:
    """Grades submissions on clusters side by side, which share what the machine has; none spoils one for the next.

    Raises:
        UsageError: there is nothing to grade, or an engine is asked for strangers' scripts that does not isolate them.
        ScenarioError: the assignment is not valid.
        EngineUnavailable: no engine answers that can be used.
    """

    folder: Path
    """Of the submissions."""
    named: Path | None
    """The file of the assignment; None: it is in that folder."""
    choice: str
    """An engine; `auto` is the first of all, which is Docker."""
    trust: bool
    """Grade without isolation, on any engine; else clusters keep submissions from everything else."""
    asked: Mapping[str, Any]
    """Fields of the shape of the clusters that were asked for."""
    options: RunOptions
    jobs: int
    """Clusters side by side."""
    announce: Callable[[str], object]
    """Called with each line of progress."""
    graded: Callable[[Grade, int, int], object]
    """Called with each grade, how many there are by then, and how many there are to be."""

    def __post_init__(self) -> None:
        assignment = find_assignment(self.folder, self.named)
        own, check = assignment.script.parent, assignment.expect.check
        named_files = [*grading_of(assignment).files, *([check.partition(":")[0]] if check else [])]
        files = [assignment.script, assignment.source, *(own / name for name in named_files)]
        self.submissions = find_submissions(self.folder, [file for file in files if file is not None])
        self.engine = open_isolating(self.choice, assignment, trust=self.trust)
        if not self.options.pull and not self.asked.get("image"):
            refuse_absent_image(assignment, self.engine)
        if with_stated_calls := find_hook("with_stated_calls"):
            assignment = with_stated_calls(assignment, *self.options.size_of_run(assignment, Shape(nodes=1)))
        self.assignment, self.options = assignment, replace(self.options, fresh=True)
        if check:  # which gets to see no submission but in the folder of its ranks
            apart = pack_folder(own, [one.path for one in self.submissions]).archive
            self.options = replace(self.options, check_archive=apart)
        self._waiting = list(self.submissions)
        self._pool = WorkerPool()
        self._grades: dict[str, Grade] = {}
        self._failure: LabError | None = None

    def grade(self) -> tuple[Grades, LabError | None]:
        """Grade all; returns a grade for each, in their order, and what kept the rest from being graded."""
        began = time.monotonic()
        turn = f"grade-{os.getpid():x}-{os.urandom(2).hex()}"
        names = [f"{turn}-{number}" for number in range(min(self.jobs, len(self.submissions)))]
        try:
            self._pool.run([partial(self._work, name) for name in names], interrupted=self._interrupted)
        except LabError as error:
            self._failure = self._failure or error
        grades = Grades(
            scenario=self.assignment.name,
            engine=self.engine.name,
            isolation=Grades.TRUSTED if self.trust else Grades.UNTRUSTED,
            grades=tuple(self._grades[one.name] for one in self.submissions if one.name in self._grades),
            duration_s=time.monotonic() - began,
        )
        return grades, self._failure

    def _interrupted(self) -> None:
        self._failure = Interrupted(f"interrupted after {len(self._grades)} of {len(self.submissions)} submissions")

    def _work(self, name: str) -> None:
        """Grade submissions until there are no more."""
        slot = ClusterSlot(engine=self.engine, name=name, asked={}, announce=self._announce)
        with hold_warm_cluster(slot, self._shape(), "grading", "grading") as warm_cluster:
            while (submission := self._next()) is not None:
                grade = self._grade(submission, warm_cluster)
                with self._pool.turn:
                    self._grades[submission.name] = grade
                    self.graded(grade, len(self._grades), len(self.submissions))

    def _announce(self, text: str) -> None:
        with self._pool.turn:
            self.announce(text)

    def _next(self) -> Submission | None:
        with self._pool.turn:
            return self._waiting.pop(0) if self._waiting and not self._pool.stopping else None

    def _shape(self) -> Shape:
        """The shape of each cluster; strict ones have limits, so that none takes anything from one beside it."""
        shape = replace(shape_for(self.assignment, self.options, self.asked), strict=not self.trust)
        if self.trust:
            return shape
        machine = self.engine.machine()
        limits = limits_for(shape.nodes * self.jobs, shape.limits, machine, strict=True)
        share = max(_LEAST_CPUS, round(machine.cores / self.jobs / shape.nodes, 2))
        cpus = shape.cpus or (share if self.jobs > 1 else float(machine.cores))
        return replace(shape, memory_bytes=limits.memory_bytes, cpus=cpus)

    def _grade(self, submission: Submission, warm_cluster: WarmCluster) -> Grade:
        assignment = self.assignment
        with ExitStack() as stack:
            try:
                script, told = stack.enter_context(staged(submission, assignment))
            except UsageError as error:  # nobody else's fault
                return without_run(submission.name, error.message, assignment, "failed")
            extra = {name: value for name, value in assignment.extra.items() if name != KEY}
            scenario = replace(
                assignment, name=make_slug(submission.name), script=script, extra=extra, **_OF_THE_CLUSTER
            )
            scenario = replace(scenario, outputs=assignment.outputs or None)
            outcome = self._run(scenario, warm_cluster)
        if isinstance(outcome, LabError):
            return without_run(submission.name, outcome.message, assignment, "error")
        result, facts = outcome
        # A node that a run has left clean is as good as new, and the agent makes sure of that. Where a rank did not
        # end by itself, or was at its limits, that is not relied on.
        if any(rank.exit_code is None for rank in result.ranks) or facts.limits or forfeited(facts):
            warm_cluster.clear()
            if self._waiting:  # who comes next does not wait for what this one did
                with suppress(LabError):  # it is tried again then
                    warm_cluster.ensure_ready()
        left_out = render_left_out(facts.staged)
        told = (*told, f"{left_out}: it reads regular files within limits") if left_out else told
        return grade_of(submission.name, result, facts, assignment, told)

    def _run(self, scenario: Scenario, warm_cluster: WarmCluster) -> tuple[Result, RunFacts] | LabError:
        """Run a submission; once more on other nodes if the lab could not, or its end or its check broke off."""
        outcome: tuple[Result, RunFacts] | LabError = LabError("it was not run")
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
                if not unheard_of(facts) and not broke_off(facts):
                    break
            except (EngineUnavailable, Interrupted):
                raise
            except LabError as error:
                outcome = error
            warm_cluster.clear()
        return outcome


_ROOM = Room(bytes=1 << 30, files=20_000)
"""What the zip file of a whole class may hold."""
_WHY_DOCKER = "only there is a submission kept from this machine, and from the next one"


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The folder of all submissions; a zip file is unpacked for as long as the block lasts.

    Raises:
        UsageError: there is none, or it cannot be unpacked.
    """
    if path.is_dir():
        yield path
    elif path.suffix.lower() != ".zip" or not path.is_file():
        raise UsageError(f"{path} is neither a folder nor a zip file", "name the folder that holds the submissions")
    else:
        with own_folder() as folder:
            try:
                unzip(path, folder, _ROOM)
            except UsageError as error:
                raise UsageError(f"{path} cannot be unpacked: {error.message}") from error
            yield folder


def find_assignment(folder: Path, named: Path | None) -> Scenario:
    """The scenario that was named, else the one in the folder of the submissions.

    Raises:
        UsageError: there is none, or there are several.
        ScenarioError: it is not valid.
    """
    if named is not None:
        return load_scenario(resolve_lesson(named))
    names = names_in(folder, ".yaml", ".yml")
    if len(names) != 1:
        there = f"holds {join_words(names)}" if names else "holds no scenario"
        raise UsageError(f"{folder} {there}", "name the assignment with --scenario")
    return load_scenario(folder / names[0])


def open_isolating(choice: str, assignment: Scenario, *, trust: bool) -> Engine:
    """Open the engine on which strangers' scripts are graded.

    Raises:
        UsageError: it does not isolate them, or the assignment would mount folders in its nodes.
        EngineUnavailable: it does not answer.
    """
    mounted = [*assignment.data, *(volume.target for volume in assignment.volumes)]
    if mounted and not trust:
        raise UsageError(
            f"{assignment.name} mounts {join_words(mounted)}, and nodes that grade mount no folder of this machine",
            "name the files under `grade: files:`; or, if you trust every submission, --trust",
        )
    first = next(iter(OPENERS))
    choice = first if choice == AUTO and not trust else choice
    try:
        engine = select_engine(choice)[0]
    except EngineUnavailable as error:
        if trust or choice != first:
            raise
        raise EngineUnavailable(f"{error.message}; submissions are graded there: {_WHY_DOCKER}", error.hint) from error
    if not trust and not engine.traits.isolates:
        raise UsageError(
            f"submissions are graded on the {first} engine: {_WHY_DOCKER}",
            f"--trust grades on the {engine.name} engine all the same, and says so on every result",
        )
    return engine
