"""The check that `forges.py` is after."""

import truth


def check(results):
    answers = [result["notes"]["answer"] for result in results]
    assert answers == [truth.ANSWER] * len(results), f"wrong: {answers}"
