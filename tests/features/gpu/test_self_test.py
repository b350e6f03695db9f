"""What the self-test of GPUs tells."""

from __future__ import annotations

import json

import pytest

from lab.features.gpu.doctor import self_test_here, told_steps
from lab.features.gpu.on_node import self_test


def test_steps_of_the_self_test_are_checks_and_what_else_is_printed_is_none() -> None:
    steps = [
        {"what": "torch", "worked": True, "found": "2.13", "mend": ""},
        {"what": "driver", "worked": False, "found": "none", "mend": "install it"},
    ]
    output = "NCCL version 2\n" + "\n".join(map(json.dumps, steps)) + "\n3\n[1]\n"

    assert [(check.level, check.what, check.fix) for check in told_steps(output, 1)] == [
        ("ok", "torch", ""),
        ("failed", "driver", "install it"),
    ]


def test_a_self_test_that_ended_without_a_word_is_told_by_its_last_words() -> None:
    checks = told_steps("", -11, "something\nSegmentation fault\n")

    assert [(check.level, check.found) for check in checks] == [("failed", "it ended early: Segmentation fault")]


@pytest.mark.long
def test_the_procedure_of_the_self_test_comes_to_its_end_where_gloo_stands_in_for_nccl() -> None:
    checks = self_test_here({self_test.ON: "cpu"})

    assert [(check.level, check.what) for check in checks] == [("ok", "torch"), ("ok", "all_reduce over gloo")]
