"""What a person predicted of a run that was taken as a lesson, and whether it held: a file of its record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.errors import RecordError
from lab.features.records.records import scenario_keys
from lab.node.messages.typed import read
from lab.record.layout import PREDICTION
from lab.record.read import Record
from lab.record.record_files import write_file


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A lesson's question, what was said to it before the run, and what is right."""

    lesson: str = ""
    """Its name."""
    question: str = ""
    choices: tuple[str, ...] = ()
    """What could be answered; empty where it was a number, or anything."""
    prediction: str = ""
    """What was said: one of the choices, a number, or any text; empty where nothing was."""
    answer: str = ""
    """What is right; empty where the question is open, or where the run does not show it."""
    right: bool | None = None
    """Whether the prediction held; None where there is none, or nothing to hold it against."""
    insight: str = ""
    """What the lesson teaches."""

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {**asdict(self), "choices": list(self.choices)}

    def write(self, folder: Path) -> None:
        """Put it into the record of its run, whole or not at all.

        Raises:
            RecordError: it cannot be written.
        """
        try:
            write_file(folder, PREDICTION, json.dumps(self.to_json(), indent=2).encode())
        except OSError as error:
            raise RecordError(f"cannot write {folder / PREDICTION}: {error.strerror or error}") from error


def prediction_of(record: Record) -> Prediction | None:
    """What was predicted of a record's run, where it was taken as a lesson; what is damaged is left out."""
    data = record.json(PREDICTION)
    return read(Prediction, data, lenient=True) if data else None


def lesson_of(record: Record) -> Prediction | None:
    """The lesson that a record is of; None where its scenario teaches nothing, or cannot be read.

    Where nobody was asked, it does not give away what is right.
    """
    told = prediction_of(record)
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
