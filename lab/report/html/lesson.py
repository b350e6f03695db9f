"""What a run was to teach: the texts of its scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lab.record.read import Record
from lab.trace.settings import scenario_keys


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """The texts of a lesson."""

    learn: str = ""
    question: str = ""
    choices: tuple[str, ...] = ()


def lesson_of(record: Record) -> Lesson | None:
    """The lesson that a record is of; None where its scenario teaches nothing, or cannot be read."""
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
