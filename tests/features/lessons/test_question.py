"""The question of a lesson: what may be said to it, and what is right."""

from __future__ import annotations

import pytest

from lab.errors import UsageError
from lab.features.lessons.question import NoteRef, Question, RunSize

SIZE = RunSize(nnodes=3, nproc_per_node=2)
NOTES = {"received": [["10.0 * rank"]], "sum": "sum(range(world_size))", "said": "yes", "first": {0: 7}}
WORDS = Question(ask="?", choices=("rank 0 waits", "nobody", "rank 1 raises"), answer="nobody")
NUMBERS = Question(ask="?", choices=("3", "8", "24"), answer="24")
LISTS = Question(ask="?", choices=("[0.0]", "[20.0]", "[0, 1]", "nothing"), answer="[20.0]")
NUMBER = Question(ask="?", answer="1 / 3 + 0 * world_size")
OPEN = Question(ask="?")


@pytest.mark.parametrize(
    ("question", "reply", "meant"),
    [
        (WORDS, "b", "nobody"),
        (WORDS, " B) ", "nobody"),
        (WORDS, "NOBODY", "nobody"),
        (WORDS, "nobdy", "nobody"),
        (WORDS, "rank 1", "rank 1 raises"),
        (WORDS, "", ""),
        (NUMBERS, "8", "8"),
        (NUMBERS, "8.0", "8"),
        (NUMBERS, "c", "24"),
        (LISTS, "20", "[20.0]"),
        (LISTS, "[20]", "[20.0]"),
        (LISTS, "0 1", "[0, 1]"),
        (LISTS, "noth", "nothing"),
        (NUMBER, "1/3", "1/3"),
        (NUMBER, " 0.33 ", "0.33"),
        (NUMBER, "-2e3", "-2e3"),
        (OPEN, "whatever  I\nthink", "whatever I think"),
    ],
)
def test_a_reply_is_a_choice_a_number_or_free(question: Question, reply: str, meant: str) -> None:
    assert question.parse_reply(reply) == meant


@pytest.mark.parametrize(
    ("question", "reply", "allowed"),
    [
        (WORDS, "4", "a letter from a to c, or the text of a choice"),
        (WORDS, "d", "a letter from a to c, or the text of a choice"),
        (WORDS, "0", "a letter from a to c, or the text of a choice"),
        (WORDS, "something else", "a letter from a to c, or the text of a choice"),
        (NUMBERS, "1", "a letter from a to c, or the text of a choice"),
        (LISTS, "7", "a letter from a to d, or the text of a choice"),
        (LISTS, "12", "a letter from a to d, or the text of a choice"),
        (NUMBER, "many", "a number, such as 3, 0.5, or 1/3"),
        (NUMBER, "1e999999999", "a number, such as 3, 0.5, or 1/3"),
        (NUMBER, "1/0", "a number, such as 3, 0.5, or 1/3"),
    ],
)
def test_another_reply_is_refused_with_what_is_allowed(question: Question, reply: str, allowed: str) -> None:
    with pytest.raises(UsageError) as refusal:
        question.parse_reply(reply)
    assert refusal.value.message == f"found {reply!r}; allowed: {allowed}"


@pytest.mark.parametrize(
    ("question", "right", "computed"),
    [
        (NUMBERS, "24", False),
        (NUMBER, "0.333333", True),
        (OPEN, "", False),
        (Question(ask="?", answer="24"), "24", False),
        (Question(ask="?", answer="world_size ** 2"), "36", True),
        (Question(ask="?", answer=NoteRef(note="sum")), "15", True),
        (Question(ask="?", answer=NoteRef(note="received", rank=2)), "20", True),
        (
            Question(ask="?", choices=("[[10]]", "[[20.0]]"), answer=NoteRef(note="received", rank=2)),
            "[[20.0]]",
            True,
        ),
        (Question(ask="?", choices=("no", "yes"), answer=NoteRef(note="said")), "yes", True),
        (Question(ask="?", choices=("5", "6"), answer="world_size"), "6", True),
        (Question(ask="?", choices=("world_size", "rank"), answer="world_size"), "world_size", False),
        (Question(ask="?", answer=NoteRef(note="first", rank=1)), "", True),
        (Question(ask="?", answer=NoteRef(note="sum", rank=6)), "", True),
        (Question(ask="?", choices=("1", "2"), answer=NoteRef(note="sum")), "", True),
    ],
)
def test_what_is_right_is_stated_or_computed(question: Question, right: str, computed: bool) -> None:
    assert (question.compute_answer(NOTES, SIZE), question.is_computed) == (right, computed)


@pytest.mark.parametrize(
    ("question", "said", "right", "held"),
    [
        (WORDS, "nobody", "nobody", True),
        (WORDS, "rank 0 waits", "nobody", False),
        (WORDS, "nobody", "", None),
        (WORDS, "", "nobody", None),
        (NUMBER, "1/3", "0.333333", True),
        (NUMBER, "0.33", "0.333333", True),
        (NUMBER, "0.3", "0.333333", False),
        (NUMBER, "24.0", "24", True),
        (NUMBER, "24.1", "24", False),
        (OPEN, "what I think", "", None),
    ],
)
def test_a_prediction_holds_or_not(question: Question, said: str, right: str, held: bool | None) -> None:
    assert question.is_right(said, right) is held
