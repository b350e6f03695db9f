"""A lesson taken: its question, a prediction, the run, and whether the prediction held.

import lab

lesson = lab.learn("scatter")  # the last line of a cell: the script and the question
lesson.answer("b")  # runs it, and says whether that was right, and why
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab.cluster import Cluster
from lab.errors import LabError, UsageError
from lab.features.lessons.progress import Attempt, LearningPath, keep, kept_of, learning_path, name_of, person_of
from lab.features.lessons.question import Prediction, Question, Size, question_of
from lab.record.result import Result
from lab.run.observe import Observer
from lab.run.options import RunOptions
from lab.spec.load import find_lesson, open_scenario
from lab.spec.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class Taken:
    """A lesson that was run."""

    result: Result
    prediction: Prediction
    script: Path
    next: str
    """The lesson to go on with; empty when all are done."""
    problem: str = ""
    """Why this was not kept, a sentence."""

    def to_json(self) -> dict[str, Any]:
        """The result of the run as plain data, with question, prediction, insight and what comes next."""
        return {**self.result.to_json(), **self.prediction.to_json(), "next": self.next, "problem": self.problem}

    def __str__(self) -> str:
        from lab.features.lessons.text import taken_text
        from lab.report.style import Style

        return taken_text(self, Style(colour=False))

    def _repr_html_(self) -> str:
        from lab.features.lessons.text import taken_html

        return taken_html(self)


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """A lesson that can be taken."""

    name: str
    scenario: Scenario
    person: str
    """Whose progress is kept."""
    path: LearningPath

    @property
    def question(self) -> Question:
        """What it asks; with an empty text where it asks nothing."""
        return question_of(self.scenario)

    def take(
        self, said: str, cluster: Cluster, *, observer: Observer | None = None, options: RunOptions | None = None
    ) -> Taken:
        """Run it, hold against the run what was said before it, and keep that.

        Args:
            said: what the person predicts, as `Question.understand` gives it; empty for nothing.
            cluster: where to run it.
            observer: watches the run.
            options: how to run it.

        Raises:
            LabError: the run could not begin.
        """
        result = cluster.run(self.scenario, observer=observer, options=options)
        right = self._right_answer(result)
        prediction = Prediction(
            lesson=self.name,
            question=self.question.ask,
            choices=self.question.choices,
            prediction=said,
            answer=right,
            right=self.question.holds(said, right),
            insight=self.scenario.learn,
        )
        problem = ""
        try:
            if result.path is not None:
                prediction.write(result.path)
            if result.passed:  # otherwise it did not show what it is about
                made = Attempt(lesson=self.name, prediction=said, right=prediction.right, run=result.run)
                keep(self.person, replace(made, time=round(time.time(), 3)))
        except LabError as error:
            problem = str(error)
        done = {*kept_of(self.person).standing, self.name}
        return Taken(
            result=result,
            prediction=prediction,
            script=self.scenario.script,
            next=self.path.next_after(self.name, done),
            problem=problem,
        )

    def _right_answer(self, result: Result) -> str:
        """What the run showed to be right; empty where it did not come out as it should, or at a size of its own."""
        nnodes = len({rank.node for rank in result.ranks})
        if not result.passed or not nnodes:
            return ""
        size = Size(nnodes=nnodes, nproc_per_node=len(result.ranks) // nnodes)
        own = Size(nnodes=self.scenario.nodes or nnodes, nproc_per_node=self.scenario.nproc_per_node or 1)
        if self.question.open or (size != own and not self.question.computed):
            return ""
        return self.question.right_answer(self.scenario.expect.notes, size)

    def answer(self, reply: str | float = "", *, engine: str = "auto", **options: Any) -> Taken:
        """Say what you predict, and see; by letter, text or number, or nothing.

        Args:
            reply: one of the choices, a number, or any text, as the question wants.
            engine: `auto`, `docker` or `local`.
            options: those of `Cluster.run`.

        Raises:
            UsageError: the question cannot be answered like that.
            LabError: the run could not begin.
        """
        said = self.question.understand(str(reply))
        return self.take(said, Cluster(engine=engine), options=RunOptions(**options))

    def __str__(self) -> str:
        from lab.features.lessons.text import question_text
        from lab.report.style import Style

        return question_text(self, Style(colour=False))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from lab.features.lessons.text import lesson_html

        return lesson_html(self)


def learn(name: str | Path, *, person: str | None = None, folder: Path | None = None) -> Lesson:
    """A lesson by its name, such as `scatter`, or by its file.

    Args:
        name: its name, or a scenario's file.
        person: whose progress is kept; by default the user's.
        folder: where to look for it; by default in `scenarios`, then among those that come with the lab.

    Raises:
        UsageError: there is none of that name, or it teaches nothing.
        ScenarioError: it is not valid.
    """
    whose, file = person_of(person), Path(name)
    file = file if file.suffix else find_lesson(str(name), [folder] if folder else None)
    scenario = open_scenario(file)
    if not scenario.learn:
        raise UsageError(f"{scenario.name} is not a lesson", "add `learn:` and `predict:` to it")
    return Lesson(name=name_of(file), scenario=scenario, person=whose, path=learning_path(folder))
