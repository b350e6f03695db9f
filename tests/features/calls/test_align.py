"""Two sequences of calls, aligned."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lab.features.calls import changes as align
from lab.features.calls.changes import Stretch, align_calls

CALLS = st.lists(st.sampled_from(["a 1", "a 2", "b 1", "c"]), max_size=14)


def longest_common(first: list[str], second: list[str]) -> int:
    lengths = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            same = lengths[i][j] + 1
            lengths[i + 1][j + 1] = same if one == other else max(lengths[i][j + 1], lengths[i + 1][j])
    return lengths[-1][-1]


def follow_each_other(found: list[Stretch], before: list[str], after: list[str]) -> None:
    ends = [Stretch(True, 0, 0, 0, 0), *found, Stretch(True, len(before), len(before), len(after), len(after))]
    assert all((one.i2, one.j2) == (other.i1, other.j1) for one, other in pairwise(ends))
    for one in found:
        assert (before[one.i1 : one.i2] == after[one.j1 : one.j2]) == one.same
        assert one.i1 < one.i2 or one.j1 < one.j2


@given(CALLS, CALLS)
def test_as_few_calls_as_possible_have_gone_or_come(before: list[str], after: list[str]) -> None:
    found = align_calls(before, after)
    follow_each_other(found, before, after)
    assert sum(one.i2 - one.i1 for one in found if one.same) == longest_common(before, after)
    assert all(one.same != other.same for one, other in pairwise(found))


@given(CALLS, CALLS, st.integers(1, 3))
def test_where_many_differ_they_still_account_for_every_call(before: list[str], after: list[str], most: int) -> None:
    known = align._MOST_EDITS
    align._MOST_EDITS = most
    try:
        follow_each_other(align_calls(before, after), before, after)
    finally:
        align._MOST_EDITS = known


def test_calls_that_are_all_different_stand_in_the_place_of_each_other() -> None:
    before, after = [f"all_reduce {i}" for i in range(3000)], [f"all_reduce {-i}" for i in range(1, 3001)]
    assert align_calls(before, after) == [Stretch(False, 0, 3000, 0, 3000)]


def test_one_more_call_in_each_of_many_rounds_is_found_as_that() -> None:
    before, after = ["a", "b", "c"] * 1000, ["a", "b", "x", "c"] * 1000
    came = [one for one in align_calls(before, after) if not one.same]
    assert [after[one.j1 : one.j2] for one in came] == [["x"]] * 1000
