"""The question of a lesson: what it asks before the run, what may be said, what is right, and what was predicted."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lab.errors import RecordError, ScenarioError, UsageError
from lab.features.lessons import PREDICTION
from lab.features.records.records import scenario_keys
from lab.frozen import Frozen
from lab.node.messages.typed import read_typed
from lab.record.read import Record
from lab.record.record_files import write_file
from lab.spec.declare import get_feature_values, key_field, mapping_schema, section_kind
from lab.spec.expressions import NOTHING_EXPECTED, RankVariables, evaluate_expected, is_expression
from lab.spec.kinds import Kind, list_of, read_text, text_kind, text_or_number, whole_number
from lab.spec.reading import InvalidError, Value, find_near_match

if TYPE_CHECKING:
    from fractions import Fraction

    from lab.spec.scenario import Scenario

LETTERS = "abcdefghi"
MOST_CHOICES = len(LETTERS)
_CLOSE = 0.02
"""A number that is not whole is right if it is this near, as a part of what is right."""
_MAX_RANK = 1024 * 1024 - 1
_NUMBER = r"[+-]?(\d{1,18} ?/ ?\d{1,18}|(\d{1,18}(\.\d{0,18})?|\.\d{1,18})([eE][+-]?\d{1,2})?)"


class Noted(Frozen):
    """What the scenario expects a rank to note."""

    note: str = key_field(MISSING, text_kind(), "note: received")
    rank: int = key_field(0, whole_number(0, _MAX_RANK), "rank: 2")


class Size(NamedTuple):
    """How many nodes a run has, and workers on each."""

    nnodes: int
    nproc_per_node: int


def _answer() -> Kind:
    noted = section_kind(Noted)
    allowed = f"one of the choices, a number, arithmetic on world_size, or {noted.allowed}"

    def read(value: Value) -> Any:
        if value.kind == "mapping":
            return noted.read(value)
        return text_or_number().read(value) if value.kind in ("integer", "number") else read_text(value, allowed)

    schema = {**mapping_schema(Noted, required=["note"]), "type": ["string", "number", "object"]}
    return Kind(allowed, read, schema, lambda data: noted.dump(data) if isinstance(data, Noted) else data)


_CHOICES = list_of(text_or_number(), "a list of text and numbers")
_CHOICES = _CHOICES._replace(schema={**_CHOICES.schema, "minItems": 2, "maxItems": MOST_CHOICES, "uniqueItems": True})


class Question(Frozen):
    """What a lesson asks before its run."""

    ask: str = key_field(MISSING, text_kind(), "ask: What does rank 2 hold?")
    """The question."""
    choices: tuple[str, ...] = key_field((), _CHOICES, "choices: [10, 20]")
    """What may be answered; without it a number, or, where nothing is right, anything."""
    answer: str | Noted = key_field("", _answer(), "answer: 20")
    """What is right; empty where the question is open."""

    @property
    def open(self) -> bool:
        """Whether nothing is right or wrong: the answer is only kept."""
        return self.answer == ""

    @property
    def computed(self) -> bool:
        """Whether what is right follows from the size of the run; otherwise it is that of the lesson's own size."""
        if isinstance(self.answer, Noted):
            return True
        return self.answer not in self.choices and is_expression(self.answer)

    def right_answer(self, notes: Mapping[str, Any], size: Size) -> str:
        """What is right in a run of this size: one of the choices, or a number; empty where that is not known.

        Args:
            notes: what the scenario expects to be noted.
            size: that of the run.
        """
        if self.answer in self.choices:
            return str(self.answer)
        value = self._value(notes, size)
        if self.choices:
            return next((choice for choice in self.choices if _says(choice, value)), "")
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
        number = _number(str(value)) if not isinstance(value, bool) else None
        return "" if number is None else f"{float(number):.6g}"

    def _value(self, notes: Mapping[str, Any], size: Size) -> Any:
        rank = self.answer.rank if isinstance(self.answer, Noted) else 0
        if rank >= size.nnodes * size.nproc_per_node:
            return NOTHING_EXPECTED
        expected = notes.get(self.answer.note, NOTHING_EXPECTED) if isinstance(self.answer, Noted) else self.answer
        if expected is NOTHING_EXPECTED:
            return expected
        return evaluate_expected(expected, RankVariables.of(rank, size.nnodes, size.nproc_per_node))

    def understand(self, reply: str) -> str:
        """What a person means: one of the choices, by letter, text or nearly that; a number; any text.

        Raises:
            UsageError: it is none of what may be answered.
        """
        said = " ".join(reply.split())
        if not said or (not self.choices and self.open):
            return said
        if not self.choices:
            if _number(said) is None:
                raise UsageError(f"found {said!r}; allowed: a number, such as 3, 0.5 or 1/3")
            return said
        meant = self._chosen(said)
        if meant is None:
            letters = f"a letter from a to {LETTERS[len(self.choices) - 1]}, or the text of a choice"
            raise UsageError(f"found {said!r}; allowed: {letters}")
        return meant

    def _chosen(self, said: str) -> str | None:
        folded, word = {choice.casefold(): choice for choice in self.choices}, said.casefold()
        letter = word.rstrip(").")
        if word not in folded and len(letter) == 1 and letter in LETTERS[: len(self.choices)]:
            return self.choices[LETTERS.index(letter)]
        number = _number(said)
        if word in folded or number is not None:
            same = [choice for choice in self.choices if _number(choice.strip("[]")) == number]
            return folded.get(word) or (same[0] if len(same) == 1 else None)
        begun = [choice for folds, choice in folded.items() if folds.startswith(word)]
        return begun[0] if len(begun) == 1 else find_near_match(said, self.choices)

    def holds(self, said: str, right: str) -> bool | None:
        """Whether what was said is right; None where that is not known."""
        if not said or not right:
            return None
        if self.choices:
            return said == right
        meant, true = _number(said), _number(right)
        if meant is None or true is None:
            return None
        if true.denominator == 1:
            return meant == true
        return math.isclose(meant, true, rel_tol=_CLOSE)


def question() -> Kind:
    """The question of a lesson: text, or a mapping with choices and what is right."""
    whole = section_kind(Question)
    allowed = f"the question, or {whole.allowed}"

    def read(value: Value) -> Question:
        if value.kind != "mapping":
            return Question(ask=read_text(value, allowed))
        found: Question = whole.read(value)
        wrong = _wrong_with_choices(found.choices)
        if not wrong and found.choices and found.open:
            wrong = "choices need an answer; allowed: the key 'answer' too"
        if wrong:
            raise value.problem(wrong)
        wrong = _wrong_with_answer(found, value.reading.known) if value.reading.is_clean else ""
        if wrong:
            raise InvalidError(value.key_where, f"predict.answer: {wrong}")
        return found

    def dump(data: Question) -> Any:
        said = whole.dump(data)
        return said["ask"] if len(said) == 1 else said

    mapping = mapping_schema(Question, required=["ask"], dependencies={"choices": ["answer"]})
    return Kind(allowed, read, {"oneOf": [{"type": "string"}, mapping]}, dump)


def _wrong_with_choices(choices: Sequence[str]) -> str:
    if choices and not 2 <= len(choices) <= MOST_CHOICES:
        return f"found {len(choices)} choices; allowed: 2 to {MOST_CHOICES}"
    twice = [choice for choice in choices if [each.casefold() for each in choices].count(choice.casefold()) > 1]
    return f"found the choice {twice[0]!r} twice; allowed: each once" if twice else ""


class LessonKeys(Frozen):
    """What a scenario says of the lesson that it is."""

    predict: Question = key_field(
        Question(ask=""), question(), "predict: {ask: Who waits?, choices: [rank 0, rank 1], answer: rank 1}", "none"
    )
    """The question that `lab learn` asks before the run, which must not give the answer away; see Questions."""


def question_of(scenario: Scenario) -> Question:
    """What a scenario asks; with an empty text where it asks nothing."""
    return get_feature_values(scenario, LessonKeys).predict


def _wrong_with_answer(asked: Question, known: Mapping[str, Any]) -> str:
    """Why the answer of a question cannot be right, by what else its scenario says; empty where it can."""
    if asked.open:
        return ""
    expect, nodes = known.get("expect"), known.get("nodes")
    notes: Mapping[str, Any] = expect.notes if expect else {}
    size = Size(nnodes=nodes, nproc_per_node=known.get("nproc_per_node") or 1) if nodes else None
    if isinstance(asked.answer, Noted) and asked.answer.note not in notes:
        allowed = ", ".join(notes) or "a note that `expect: notes:` names"
        return f"found the note {asked.answer.note!r}, which is not expected; allowed: {allowed}"
    if size is None:
        return ""
    try:
        if asked.right_answer(notes, size):
            return ""
    except ScenarioError as error:
        return error.message
    what = "one of the choices" if asked.choices else "a number, or choices to it"
    return f"it is none that can be given; allowed: {what}"


def _says(choice: str, value: Any) -> bool:
    """Whether a choice is a value, as JSON writes it or as text."""
    if isinstance(value, str):
        return choice == value
    try:
        return bool(json.loads(choice) == value)
    except (ValueError, RecursionError):
        return False


def _number(said: str) -> Fraction | None:
    if not re.fullmatch(_NUMBER, said, re.ASCII):
        return None
    from fractions import Fraction  # a run asks nobody

    try:
        return Fraction(said.replace(" ", ""))
    except ZeroDivisionError:
        return None


class Prediction(Frozen):
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
    return read_typed(Prediction, data, lenient=True) if data else None


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
