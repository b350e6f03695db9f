"""The question of a lesson, the replies that it allows, the right answer, and a person's prediction."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
"""A predicted fraction counts as right within this relative tolerance; a whole number has to be equal."""
_MAX_RANK = 1024 * 1024 - 1
_NUMBER = r"[+-]?(\d{1,18} ?/ ?\d{1,18}|(\d{1,18}(\.\d{0,18})?|\.\d{1,18})([eE][+-]?\d{1,2})?)"


class NoteRef(Frozen):
    """A note of one rank, as the scenario expects it."""

    note: str = key_field(MISSING, text_kind(), "note: received")
    rank: int = key_field(0, whole_number(0, _MAX_RANK), "rank: 2")


class RunSize(NamedTuple):
    """The number of nodes of a run, and of workers per node."""

    nnodes: int
    nproc_per_node: int


def _answer() -> Kind:
    noted = section_kind(NoteRef)
    allowed = f"one of the choices, a number, arithmetic on world_size, or {noted.allowed}"

    def read(value: Value) -> Any:
        if value.kind == "mapping":
            return noted.read(value)
        return text_or_number().read(value) if value.kind in ("integer", "number") else read_text(value, allowed)

    schema = {**mapping_schema(NoteRef, required=["note"]), "type": ["string", "number", "object"]}
    return Kind(allowed, read, schema, lambda data: noted.dump(data) if isinstance(data, NoteRef) else data)


_CHOICES = list_of(text_or_number(), "a list of text and numbers")
_CHOICES = _CHOICES._replace(schema={**_CHOICES.schema, "minItems": 2, "maxItems": MOST_CHOICES, "uniqueItems": True})


class Question(Frozen):
    """What a lesson asks before its run."""

    ask: str = key_field(MISSING, text_kind(), "ask: What does rank 2 hold?")
    """The question."""
    choices: tuple[str, ...] = key_field((), _CHOICES, "choices: [10, 20]")
    """The replies to choose from; without choices, a number, or any text if the question is open."""
    answer: str | NoteRef = key_field("", _answer(), "answer: 20")
    """The right answer; empty if the question is open."""

    @property
    def is_open(self) -> bool:
        """Whether no answer is right or wrong: the prediction is only stored."""
        return self.answer == ""

    @property
    def is_computed(self) -> bool:
        """Whether the right answer follows from the size of the run; or else holds for one size only."""
        return isinstance(self.answer, NoteRef) or (self.answer not in self.choices and is_expression(self.answer))

    def compute_answer(self, notes: Mapping[str, Any], size: RunSize) -> str:
        """Return the right answer for a run of this size: a choice or a number; empty if it is unknown.

        Args:
            notes: The notes that the scenario expects, by name.
            size: The size of the run.
        """
        if self.answer in self.choices:
            return str(self.answer)
        value = self._value(notes, size)
        if self.choices:
            return next((choice for choice in self.choices if _equals_choice(choice, value)), "")
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
        number = _parse_number(str(value)) if not isinstance(value, bool) else None
        return "" if number is None else f"{float(number):.6g}"

    def _value(self, notes: Mapping[str, Any], size: RunSize) -> Any:
        rank = self.answer.rank if isinstance(self.answer, NoteRef) else 0
        if rank >= size.nnodes * size.nproc_per_node:
            return NOTHING_EXPECTED
        expected = notes.get(self.answer.note, NOTHING_EXPECTED) if isinstance(self.answer, NoteRef) else self.answer
        if expected is NOTHING_EXPECTED:
            return expected
        return evaluate_expected(expected, RankVariables.of(rank, size.nnodes, size.nproc_per_node))

    def parse_reply(self, reply: str) -> str:
        """Interpret a person's reply.

        With choices, return the choice that the reply names by letter, by text, or nearly; else a number or any text.

        Raises:
            UsageError: The question does not allow this reply.
        """
        if not (reply := " ".join(reply.split())) or (not self.choices and self.is_open):
            return reply
        if not self.choices:
            if _parse_number(reply) is None:
                raise UsageError(f"found {reply!r}; allowed: a number, such as 3, 0.5, or 1/3")
            return reply
        if (choice := self._match_choice(reply)) is None:
            letters = f"a letter from a to {LETTERS[len(self.choices) - 1]}, or the text of a choice"
            raise UsageError(f"found {reply!r}; allowed: {letters}")
        return choice

    def _match_choice(self, reply: str) -> str | None:
        folded, word = {choice.casefold(): choice for choice in self.choices}, reply.casefold()
        letter = word.rstrip(").")
        if word not in folded and len(letter) == 1 and letter in LETTERS[: len(self.choices)]:
            return self.choices[LETTERS.index(letter)]
        number = _parse_number(reply)
        if word in folded or number is not None:
            same = [choice for choice in self.choices if _parse_number(choice.strip("[]")) == number]
            return folded.get(word) or (same[0] if len(same) == 1 else None)
        prefixed = [choice for folds, choice in folded.items() if folds.startswith(word)]
        return prefixed[0] if len(prefixed) == 1 else find_near_match(reply, self.choices, 0.6)

    def is_right(self, prediction: str, answer: str) -> bool | None:
        """Return whether a prediction is right; None if that is not known."""
        if not prediction or not answer:
            return None
        if self.choices:
            return prediction == answer
        predicted, expected = _parse_number(prediction), _parse_number(answer)
        if predicted is None or expected is None:
            return None
        return predicted == expected if expected.denominator == 1 else math.isclose(predicted, expected, rel_tol=_CLOSE)


def question_kind() -> Kind:
    """Return the kind of the key `predict`: text, or a mapping with choices and the right answer."""
    mapping_section = section_kind(Question)
    allowed = f"the question, or {mapping_section.allowed}"

    def read(value: Value) -> Question:
        if value.kind != "mapping":
            return Question(ask=read_text(value, allowed))
        question: Question = mapping_section.read(value)
        problem = _check_choices(question.choices)
        if not problem and question.choices and question.is_open:
            problem = "`choices` needs the key `answer`"
        if problem:
            raise value.problem(problem)
        problem = _check_answer(question, value.reading.known) if value.reading.is_clean else ""
        if problem:
            raise InvalidError(value.key_where, f"predict.answer: {problem}")
        return question

    def dump(data: Question) -> Any:
        fields = mapping_section.dump(data)
        return fields["ask"] if len(fields) == 1 else fields

    mapping = mapping_schema(Question, required=["ask"], dependencies={"choices": ["answer"]})
    return Kind(allowed, read, {"oneOf": [{"type": "string"}, mapping]}, dump)


def _check_choices(choices: Sequence[str]) -> str:
    if choices and not 2 <= len(choices) <= MOST_CHOICES:
        return f"found {len(choices)} choices; allowed: 2 to {MOST_CHOICES}"
    twice = [choice for choice in choices if [each.casefold() for each in choices].count(choice.casefold()) > 1]
    return f"found the choice {twice[0]!r} twice; allowed: each once" if twice else ""


class LessonKeys(Frozen):
    """The keys that make a scenario a lesson."""

    predict: Question = key_field(
        Question(ask=""),
        question_kind(),
        "predict: {ask: Who waits?, choices: [rank 0, rank 1], answer: rank 1}",
        "none",
    )
    """The question that `lab learn` asks before the run, which must not give the answer away; see Questions."""


def scenario_question(scenario: Scenario) -> Question:
    """Return the question of a scenario; its text is empty if the scenario asks nothing."""
    return get_feature_values(scenario, LessonKeys).predict


def _check_answer(question: Question, known: Mapping[str, Any]) -> str:
    """Return why the answer of a question cannot be right, given the other keys of its scenario; empty if it can."""
    if question.is_open:
        return ""
    expect, nodes = known.get("expect"), known.get("nodes")
    notes: Mapping[str, Any] = expect.notes if expect else {}
    size = RunSize(nnodes=nodes, nproc_per_node=known.get("nproc_per_node") or 1) if nodes else None
    if isinstance(question.answer, NoteRef) and question.answer.note not in notes:
        allowed = ", ".join(notes) or "a note that `expect: notes:` names"
        return f"found the note {question.answer.note!r}, which is not expected; allowed: {allowed}"
    if size is None:
        return ""
    try:
        if question.compute_answer(notes, size):
            return ""
    except ScenarioError as error:
        return error.message
    what = "one of the choices" if question.choices else "a number; or add choices"
    return f"no reply can be equal to it; allowed: {what}"


def _equals_choice(choice: str, value: Any) -> bool:
    """Return whether a choice denotes a value, as JSON or as text."""
    if isinstance(value, str):
        return choice == value
    with suppress(ValueError, RecursionError):
        return bool(json.loads(choice) == value)
    return False


def _parse_number(literal: str) -> Fraction | None:
    if not re.fullmatch(_NUMBER, literal, re.ASCII):
        return None
    from fractions import Fraction  # imported here because a run asks no question

    with suppress(ZeroDivisionError):
        return Fraction(literal.replace(" ", ""))
    return None


class Prediction(Frozen):
    """A lesson's question, the prediction before the run, and the right answer."""

    lesson: str = ""
    """Name of the lesson."""
    question: str = ""
    choices: tuple[str, ...] = ()
    """The replies to choose from; empty if the question wanted a number or any text."""
    prediction: str = ""
    """One of the choices, a number, or any text; empty if the person predicted nothing."""
    answer: str = ""
    """The right answer; empty if the question is open, or if the run does not show it."""
    right: bool | None = None
    """Whether the prediction was right; None without a prediction, or if nothing can be compared with it."""
    insight: str = ""
    """What the lesson teaches."""

    def to_json(self) -> dict[str, Any]:
        """Return the prediction as plain data."""
        return {**asdict(self), "choices": list(self.choices)}

    def write(self, folder: Path) -> None:
        """Write the prediction into the record of its run, completely or not at all.

        Raises:
            RecordError: The file cannot be written.
        """
        with RecordError.on_os_error(f"cannot write {folder / PREDICTION}"):
            write_file(folder, PREDICTION, json.dumps(self.to_json(), indent=2).encode())


def read_prediction(record: Record) -> Prediction | None:
    """Read the prediction for a record's run; None if the run was not a lesson. Damaged fields are left out."""
    data = record.json(PREDICTION)
    return read_typed(Prediction, data, lenient=True) if data else None


def read_lesson(record: Record) -> Prediction | None:
    """Return the lesson of a record; None if its scenario teaches nothing or cannot be read.

    Without a prediction the right answer stays hidden.
    """
    prediction = read_prediction(record)
    if prediction is not None or "learn:" not in record.scenario_text():
        return prediction
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
