"""Checks what a submission left behind. It never imports the submission."""

import random

from lab import read_output

SEED = 4711  # as in the scenario


def check(results):
    expected = sum(random.Random(SEED + result["rank"]).randrange(1000) for result in results)
    answer = read_output("answer.json")
    assert isinstance(answer, dict), "answer.json holds no mapping"
    assert answer.get("sum") == expected, "answer.json does not hold the sum of all ranks"
