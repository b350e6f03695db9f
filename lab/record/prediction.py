"""What a person predicted of a run that was taken as a lesson, and whether it held: a file of its record."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.errors import RecordError
from lab.record.layout import PREDICTION
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
