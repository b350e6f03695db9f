"""What a run was to teach, and what was predicted of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lab.record.read import Record
from lab.trace.settings import scenario_keys


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """What a lesson says and asks, and what was said."""

    learn: str = ""
    """What it teaches."""
    question: str = ""
    choices: tuple[str, ...] = ()
    prediction: str = ""
    """What was said before the run; empty where nothing was."""
    answer: str = ""
    """What is right; empty where nothing is, or where nobody was asked: the page does not give it away."""
    right: bool | None = None
    """Whether the prediction held; None where that cannot be said."""


def lesson_of(record: Record) -> Lesson | None:
    """The lesson that a record is of; None where its scenario teaches nothing, or cannot be read."""
    told = record.prediction()
    if told is not None:
        return Lesson(
            learn=told.insight,
            question=told.question,
            choices=told.choices,
            prediction=told.prediction,
            answer=told.answer,
            right=told.right,
        )
    if "learn:" not in record.scenario_text():
        return None
    keys = scenario_keys(record)
    learn, predict = keys.get("learn"), keys.get("predict")
    question = predict if isinstance(predict, Mapping) else {"ask": predict}
    ask, choices = question.get("ask"), question.get("choices")
    if not isinstance(learn, str) or not learn:
        return None
    return Lesson(
        learn=learn,
        question=ask if isinstance(ask, str) else "",
        choices=tuple(map(str, choices)) if isinstance(choices, list) else (),
    )
