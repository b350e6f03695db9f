"""What ranks call otherwise, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.features.calls.changes import describe_changes
from tests.golden import golden

KB4 = "all_reduce SUM float32[1024]"
STEP = (KB4, "broadcast float32[2] from 0", "barrier")


def told(
    before: Mapping[int, Sequence[str]], after: Mapping[int, Sequence[str]], ended: Mapping[int, bool] | None = None
) -> list[str]:
    found = describe_changes(before, after, lambda rank, i: f"train.py:{i + 1}", than="the snapshot", ended=ended or {})
    return [one.text for one in found]


def every(calls: Sequence[str], ranks: int = 3) -> dict[int, Sequence[str]]:
    return dict.fromkeys(range(ranks), calls)


def test_the_same_calls_are_told_in_no_words() -> None:
    assert told(every(STEP), every(STEP)) == []


def test_one_more_call_of_one_rank_is_told_with_its_rank_size_place_and_line() -> None:
    after = {**every(STEP), 1: (STEP[0], KB4.replace("SUM", "MAX"), *STEP[1:])}
    assert told(every(STEP), after) == [golden(1)]


def test_what_all_ranks_do_otherwise_is_told_once() -> None:
    assert told(every(STEP), every((*STEP, "barrier"))) == [golden(1)]


def test_what_some_ranks_do_otherwise_names_them() -> None:
    after = {**every(STEP, 4), 0: STEP[:2], 2: STEP[:2]}
    assert told(every(STEP, 4), after) == [golden(1)]


def test_what_comes_in_every_round_is_told_once_with_how_often() -> None:
    after = tuple(text.replace("1024", "2048") for text in STEP)
    assert told(every(STEP * 5), every(after * 5)) == [golden(1)]


def test_a_bucket_that_grew_is_told_as_a_bucket() -> None:
    before = (KB4 + " async bucket 1 during backward", "all_reduce SUM float32[262144] async bucket 2 during backward")
    after = (before[0], before[1].replace("262144", "524288"))
    assert told(every(before), every(after)) == [golden(1)]
    assert told(every(before), {**every(before), 1: after}) == [golden(2)]


def test_calls_that_changed_places_are_told_as_that() -> None:
    after = {**every(STEP), 2: (STEP[1], STEP[0], STEP[2])}
    [sentence] = told(every(STEP), after)
    assert sentence in (
        golden(1),
        golden(2),
    )


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ("reduce SUM float32[1]", "reduce MAX float32[1]",
         "reduce (MAX float32[1], 4 B), but the snapshot has reduce (SUM float32[1], 4 B)"),
        ("broadcast from 0", "broadcast from 1", "broadcast (from 1), but the snapshot has broadcast (from 0)"),
        ("send to 1 tag 3", "send to 2", "send (to 2), but the snapshot has send (to 1 tag 3)"),
        ("recv from any", "recv from 1", "recv (from 1), but the snapshot has recv (from any)"),
        ("barrier", "barrier in [0, 1]", "barrier (in [0, 1]), but the snapshot has barrier"),
        ("barrier async", "barrier", "barrier, but the snapshot has barrier (async)"),
        ("barrier during loss", "barrier", "barrier, but the snapshot has barrier (during loss)"),
        ("barrier", "reduce float64[2] to 0", "reduce (float64[2] to 0, 16 B), but the snapshot has barrier"),
        ("barrier", "no_such_thing x", "no_such_thing (x), but the snapshot has barrier"),
    ],
)  # fmt: skip
def test_a_call_in_the_place_of_another_is_told_with_what_differs(was: str, now: str, words: str) -> None:
    assert told({0: (was,)}, {0: (now,)}) == [golden(1, words)]


def test_of_a_rank_that_did_not_end_nothing_is_missing_at_its_end() -> None:
    before = every(STEP * 3, 2)
    assert told(before, {0: STEP * 2, 1: STEP[:2]}, {0: False, 1: False}) == []
    assert told(before, {0: STEP * 2, 1: STEP[1:2]}, {0: False, 1: False}) == [golden(1)]


def test_a_rank_that_was_not_there_is_told_in_one_sentence() -> None:
    assert told(every(STEP, 2), every(STEP, 3)) == [golden(1)]


CALLS = st.lists(st.sampled_from([*STEP, "send to 1", "barrier async bucket 2"]), max_size=12)


@given(CALLS, CALLS, st.booleans())
def test_every_change_is_told_and_nothing_else(before: list[str], after: list[str], ended: bool) -> None:
    found = told({0: before}, {0: after}, {0: ended})
    if before == after:
        assert found == []
    elif ended:
        assert found
    assert not any("{" in sentence for sentence in found)
