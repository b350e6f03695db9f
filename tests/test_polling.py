from collections.abc import Iterator

import pytest

from lab.polling import poll_until


def answers(*given: object) -> Iterator[object]:
    yield from given


def test_the_first_answer_that_is_enough_ends_the_wait() -> None:
    given = answers(0, "", "done", "later")
    assert poll_until(lambda: next(given), 60.0, 0.0) == "done"
    assert next(given) == "later"


def test_what_is_enough_can_be_said_where_an_answer_may_be_zero() -> None:
    given = answers(None, 0)
    assert poll_until(lambda: next(given), 60.0, 0.0, enough=lambda answer: answer is not None) == 0


def test_when_the_time_is_up_the_last_answer_comes_back() -> None:
    asked = []
    assert poll_until(lambda: asked.append(None), 0.02, 0.001) is None
    assert len(asked) > 1


def test_what_the_question_raises_ends_the_wait_also_when_it_is_asked_again() -> None:
    given = answers(False)
    with pytest.raises(StopIteration):
        poll_until(lambda: next(given), 60.0, 0.0)
