"""The check: no submission may see it. SECRET-OF-THE-ASSIGNMENT"""

import json

import tolerance

from lab import read_output


def check(results):
    with open("expected.json") as file:
        expected = json.load(file)["sum"]
    totals = [result["notes"].get("total") for result in results]
    assert all(tolerance.same(total, expected) for total in totals), f"not all ranks have the sum: {totals}"
    answer = read_output("answer.json")
    assert isinstance(answer, dict), "answer.json holds no mapping"
    assert answer.get("sum") == expected, "answer.json does not hold the sum"
