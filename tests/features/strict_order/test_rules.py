"""The table of rules, and what it says of single calls and messages."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.errors import UsageError
from lab.features.strict_order import option
from lab.features.strict_order.on_node import rules
from lab.plan.cluster import Shape
from lab.plan.plan import PlanOptions, make_plan, unmade_cluster
from lab.spec.scenario import Scenario
from tests.late import torch

pytestmark = pytest.mark.unit
ROOT = Path(__file__).parents[3]


def test_every_rule_has_a_source_that_can_be_opened_in_a_browser() -> None:
    for rule in (*rules.ORDER, *rules.REJECTED.values()):
        assert re.fullmatch(r"https://(github\.com|docs\.pytorch\.org|docs\.nvidia\.com)/\S+", rule.source), rule.name
        assert rule.about
        assert rule.nccl


@pytest.mark.parametrize(
    ("before", "after", "waits"),
    [
        ((None, None), (None, None), True),
        ((None, None), (("0", 1), None), True),
        ((("0", 1), None), (None, None), True),
        ((("0", 1), None), (("0", 1), None), True),
        ((("0", 1), None), (("0", 2), None), False),
        ((("0", 1), None), (("1", 1), None), False),
        ((None, "batch"), (None, "batch"), False),
        ((None, "batch"), (None, "other"), True),
    ],
)
def test_collectives_wait_for_all_and_messages_for_their_pair(before: Any, after: Any, waits: bool) -> None:
    assert rules.must_wait(before, after) is waits


def rejected(op: str, facts: dict[str, Any], *tensors: Any) -> str:
    try:
        rules.check_call(op, facts, tensors)
    except rules.StrictOrderError as error:
        return error.rule
    return ""


def test_calls_that_nccl_rejects_are_rejected_by_the_rule() -> None:
    whole = torch.zeros(4, 6)
    assert rejected("all_reduce", {"red": "SUM"}, whole) == ""
    assert rejected("all_reduce", {"red": "BXOR"}, whole.int()) == "reduction"
    assert rejected("recv", {"peer": -1, "tag": 0}, whole) == "any source"
    assert rejected("broadcast", {}, whole.t()) == "layout"
    assert rejected("broadcast", {}, whole[:, :2]) == "layout"
    assert rejected("send", {"peer": 1}, whole.t()) == ""
    assert rejected("broadcast", {}, torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)) == ""
    assert rejected("all_reduce", {"red": "SUM"}, whole.to_sparse()) == "dense"
    assert rejected("send", {"peer": 1}, whole.short()) == "dtype"
    assert rejected("send", {"peer": 1}, whole.to(torch.complex64)) == "dtype"
    for dtype in (torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float64):
        assert rejected("send", {"peer": 1}, whole.to(dtype)) == ""
    assert rejected("all_gather", {}, whole, whole.to("meta")) == "dense"
    assert rejected("monitored_barrier", {}) == "monitored barrier"
    assert rejected("all_gather_coalesced", {}, whole) == "coalesced"
    assert rejected("barrier", {}) == ""


SENT = {"rank": 0, "tag": 1, "at": "a.py:3", "dtype": "float32", "count": 4}


@pytest.mark.parametrize(
    ("other", "rule"), [({}, ""), ({"tag": 2}, "tag"), ({"count": 5}, "count"), ({"dtype": "int32"}, "count")]
)
def test_the_next_receive_of_a_pair_has_to_fit_whatever_its_tag(other: dict[str, Any], rule: str) -> None:
    received = {**SENT, "rank": 1, "at": "a.py:9", **other}
    if not rule:
        rules.check_message(SENT, received)
        return
    with pytest.raises(rules.StrictOrderError, match=r"rank 0 sends .* at a\.py:3, .* rank 1 at a\.py:9") as caught:
        rules.check_message(SENT, received)
    assert (caught.value.rule, caught.value.lines) == (rule, ["a.py:3", "a.py:9"])


def test_objects_need_a_script_that_chooses_its_gpu() -> None:
    assert not rules.names_device(["import torch\nprint(torch.cuda.device_count())"])
    assert rules.names_device(["", "torch.cuda.set_device(local_rank)"])
    assert rules.names_device(["dist.init_process_group('nccl', device_id=device)"])


def scenario(**more: Any) -> Scenario:
    return Scenario(name="s", script=Path("s.py"), nodes=2, extra={"strict_order": True}, **more)


def test_the_key_of_a_scenario_reaches_every_worker() -> None:
    cluster = unmade_cluster(Shape(nodes=2), "c")
    plan = make_plan(scenario(), "run", cluster, PlanOptions())
    assert [worker.env[rules.VARIABLE] for worker in plan.workers] == ["1", "1"]
    assert plan.to_json()["strict_order"] is True
    without = make_plan(replace(scenario(), extra={"strict_order": False}), "run", cluster, PlanOptions())
    assert rules.VARIABLE not in without.workers[0].env


def test_a_run_that_records_no_calls_cannot_be_strict() -> None:
    cluster = unmade_cluster(Shape(nodes=2), "c")
    with pytest.raises(UsageError, match="--no-trace"):
        make_plan(scenario(), "run", cluster, PlanOptions(trace=False))
    with pytest.raises(UsageError, match="LAB_RECORDER=off"):
        make_plan(scenario(env={"LAB_RECORDER": "off"}), "run", cluster, PlanOptions())
    arguments = argparse.Namespace(strict_order=True, trace=False, env=[])
    with pytest.raises(UsageError, match="--no-trace"):
        option.OPTION.run(arguments, lambda _: 0)


def test_the_option_sets_the_variable_of_the_runs() -> None:
    arguments = argparse.Namespace(strict_order=True, trace=True, env=[("A", "b")])
    assert option.OPTION.run(arguments, lambda given: len(given.env)) == 2
    assert arguments.env[-1] == (rules.VARIABLE, "1")
