"""The check: no submission may see it. SECRET-OF-THE-ASSIGNMENT"""

import json
import os

import tolerance


def check(results):
    with open("expected.json") as file:
        expected = json.load(file)["sum"]
    totals = [result["notes"].get("total") for result in results]
    assert all(tolerance.same(total, expected) for total in totals), f"not all ranks have the sum: {totals}"
    with open(os.path.join(os.environ["LAB_WORK_FOLDER"], "answer.json")) as file:
        answer = json.load(file)
    assert answer["sum"] == expected, "answer.json does not hold the sum"
