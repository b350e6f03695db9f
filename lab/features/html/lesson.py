"""What a run was to teach, and what was predicted of it."""

from __future__ import annotations

from collections.abc import Mapping

from lab.record.prediction import Prediction
from lab.record.read import Record
from lab.record.sources import scenario_keys


def lesson_of(record: Record) -> Prediction | None:
    """The lesson that a record is of; None where its scenario teaches nothing, or cannot be read.

    Where nobody was asked, it does not give away what is right.
    """
    told = record.prediction()
    if told is not None or "learn:" not in record.scenario_text():
        return told
    keys = scenario_keys(record)
    learn, predict = keys.get("learn"), keys.get("predict")
    question = predict if isinstance(predict, Mapping) else {"ask": predict}
    ask, choices = question.get("ask"), question.get("choices")
    if not isinstance(learn, str) or not learn:
        return None
    return Prediction(
        insight=learn,
        question=ask if isinstance(ask, str) else "",
        choices=tuple(map(str, choices)) if isinstance(choices, list) else (),
    )
