"""Which of two ranks left the loop that both were in."""

from __future__ import annotations

import pytest

from lab.features.mismatches.findings import find_skipped_calls, out_of_step

pytestmark = pytest.mark.unit


def beats(text: str) -> list[tuple[str, str]]:
    return [(letter, "train.py:1") for letter in text]


@pytest.mark.parametrize(
    ("one", "other", "who"),
    [
        ("ABABAB", "ABABB", 1),  # skipped the first call of a body
        ("ABABAB", "ABABAAB", 1),  # an A more
        ("ABABAX", "ABABAB", 0),  # something else in the middle of a body
        ("ABABAB", "ABABA", 1),  # ended in the middle of a body
        ("PABCABCABC", "PABCABCC", 1),  # after a preamble
        ("BAABAABAA", "BAABAABAB", 1),  # the shortest repetition is not always the body
        ("BAABAA", "BAABAAB", None),
        ("ABABAB", "ABABX", None),  # the loop may be over for either
        ("ABAB", "ABABAB", None),
        ("AAAA", "AAA", None),  # a body of one call ends at every call
        ("AX", "AY", None),  # nothing repeats
        ("", "A", None),
        ("ABAB", "ABAB", None),
        ("ABABX", "ABABY", None),
    ],
)
def test_who_left_is_said_only_where_it_can_be_known(one: str, other: str, who: int | None) -> None:
    assert out_of_step(beats(one), beats(other)) == who
    assert out_of_step(beats(other), beats(one)) == (None if who is None else 1 - who)


@pytest.mark.parametrize(
    ("done", "found"),
    [
        ("ABCABCACABC", [4]),
        ("ABABAABAB", [3]),
        ("ABCABCAXABC", []),  # something else in its place
        ("ABCABCABABC", [5]),  # the last of the body
        ("ABCABCBCABC", []),  # the loop may have been over
        ("ABCABCA", []),
        ("AAAA", []),
        ("", []),
    ],
)
def test_what_was_left_out_in_mid_loop_is_found_where_the_loop_went_on(done: str, found: list[int]) -> None:
    assert find_skipped_calls(beats(done)) == found
