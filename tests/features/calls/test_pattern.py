"""The notation of expected calls: what it means, and what a person reads who mistypes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.errors import ScenarioError
from lab.features.calls.pattern import ANYTHING, FORM, MAX_CALLS, CallPattern, parse_calls
from lab.spec.expressions import rank_variables
from lab.spec.load import dump_scenario, load_scenario
from tests.golden import golden

THREE = rank_variables(3, 1)


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("barrier", {"op": "barrier"}),
        ("all_reduce SUM float32[45]", {"op": "all_reduce", "reduce_op": "SUM", "tensors": (("float32", (45,)),)}),
        ("all_gather int64", {"op": "all_gather", "tensors": (("int64", None),)}),
        ("all_reduce float32[]", {"op": "all_reduce", "tensors": (("float32", ()),)}),
        ("broadcast float32[2, 3] from 0", {"op": "broadcast", "tensors": (("float32", (2, 3)),), "source": 0}),
        ("scatter 2*int8[1]+bool from 1", {
            "op": "scatter", "tensors": (("int8", (1,)), ("int8", (1,)), ("bool", None)), "source": 1,
        }),
        ("send to 1 tag 7", {"op": "send", "destination": 1, "tag": 7}),
        ("all_reduce in [0, 2]", {"op": "all_reduce", "group": "[0, 2]"}),
        ('reduce to 2 in "my group" during DDP()', {
            "op": "reduce", "destination": 2, "group": "my group", "phase": "DDP()",
        }),
        ("recv from any tag 3", {"op": "recv", "from_any": True, "tag": 3}),
        ("all_reduce async bucket 2 module 1", {"op": "all_reduce", "has_handle": True, "bucket": 2, "module": 1}),
        ("all_to_all_single int8[3] split [1,2]", {
            "op": "all_to_all_single", "tensors": (("int8", (3,)),), "split": (1, 2),
        }),
    ],
)  # fmt: skip
def test_what_is_written_is_stated_and_nothing_else(text: str, stated: dict[str, Any]) -> None:
    assert parse_calls(text, THREE[0]) == (CallPattern(text=text, **stated),)


def test_times_and_brackets_repeat() -> None:
    texts = [pattern.text for pattern in parse_calls("(send, (recv, ...) x2, barrier during DDP()) x2", THREE[0])]
    assert texts == ["send", "recv", "...", "recv", "...", "barrier during DDP()"] * 2
    assert parse_calls("barrier x0", THREE[0]) == ()
    labelled = parse_calls('(barrier in "a, (b", barrier in [0, 1])', THREE[0])
    assert [getattr(pattern, "group", None) for pattern in labelled] == ["a, (b", "[0, 1]"]
    assert parse_calls("...") == (ANYTHING,)


def test_braces_hold_arithmetic_on_the_rank() -> None:
    text = "send int64[{2 * world_size}] to {(rank + 1) % world_size} x{rank}"
    assert parse_calls(text, THREE[0]) == ()
    (only,) = parse_calls(text, THREE[1])
    assert only.text == "send int64[6] to 2"
    assert len(parse_calls(text, THREE[2])) == 2


def test_a_call_that_a_rank_makes_no_times_may_name_a_rank_that_is_not_there() -> None:
    assert parse_calls(golden(1), THREE[0]) == ()
    assert len(parse_calls(golden(1), THREE[1])) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"found ''; allowed: {FORM}"),
        ("all_reduce float32[4", f"found 'all_reduce float32[4'; allowed: {FORM}"),
        ("send from", f"found 'send from', but 'from' has no value; allowed: {FORM}"),
        ("send to 3", "found 'send to 3'; allowed: a rank from 0 to 2 after 'to'"),
        ("send tag x", "found 'send tag x'; allowed: a whole number, 0 or more, after 'tag'"),
        ("send to 1 to 2", f"found 'send to 1 to 2', which states 'to' more than once; allowed: {FORM}"),
        (
            "all_to_all_single split 3",
            "found 'all_to_all_single split 3'; allowed: rows for each rank after 'split', such as [1,2]",
        ),
        ("all_reduce bucket -1", "found 'all_reduce bucket -1'; allowed: a whole number, 0 or more, after 'bucket'"),
        ("barrier x-1", "found 'barrier x-1'; allowed: 0 or more times"),
        ("(send, recv", "found '(send, recv'; allowed: (CALL, CALL) xTIMES, with one closing bracket"),
        ("barrier x99999999", f"found 'barrier x99999999'; allowed: up to {MAX_CALLS} calls"),
    ],
)
def test_what_is_no_call_is_refused_with_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        parse_calls(text, THREE[0])
    assert refusal.value.message == message


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("allreduce", "with the operation 'allreduce' (did you mean 'all_reduce'?); allowed: broadcast, "),
        ("all_reduce flaot32[4]", "with 'flaot32' (did you mean 'float32'?); allowed: a tensor such as float32[2,3], "),
        ("all_reduce sum", "with 'sum' (did you mean 'SUM'?)"),
        ("broadcast form 0", "with 'form' (did you mean 'from'?)"),
        ("barrier during backwards", "with the phase 'backwards' (did you mean 'backward'?); allowed: init_process"),
        ("send to {rnk}", "found {rnk} (did you mean 'rank'?); allowed in braces: arithmetic on rank, "),
    ],
)
def test_a_typing_mistake_is_told_with_what_was_probably_meant(text: str, meant: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        parse_calls(text, THREE[0])
    assert meant in refusal.value.message


@pytest.mark.parametrize("text", ["(" * 900 + ")" * 900, "(" * 11 + "send" + ")" * 11, "send " * 500, "x" * 5000])
def test_text_of_no_sense_ends_in_one_sentence(text: str) -> None:
    with pytest.raises(ScenarioError):
        parse_calls(text, THREE[0])


def scenario(folder: Path, calls: str) -> Path:
    (folder / "train.py").write_text("")
    path = folder / "scenario.yaml"
    path.write_text(f"script: train.py\nnodes: 2\nnproc_per_node: 1\nexpect:\n  calls:{calls}\n")
    return path


def test_a_list_for_all_ranks_and_a_list_per_rank_load_and_dump(tmp_path: Path) -> None:
    for_all = load_scenario(scenario(tmp_path, "\n  - send int64[2] to {1 - rank}\n  - ...\n"))
    assert for_all.expect.extra["calls"] == (golden(1), "...")
    per_rank = load_scenario(scenario(tmp_path, " {0: [send to 1], 1: []}"))
    assert per_rank.expect.extra["calls"] == {0: ("send to 1",), 1: ()}
    for loaded in (for_all, per_rank):
        (tmp_path / "again.yaml").write_text(dump_scenario(loaded))
        assert load_scenario(tmp_path / "again.yaml").expect == loaded.expect


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        (
            "\n  - send\n  - snd to 1\n",
            "7:5: expect.calls[1]: found 'snd to 1', with the operation 'snd' (did you mean 'send'",
        ),
        (
            " {0: [send], 2: [recv]}",
            "5:22: expect.calls: found the number 2 as a key; allowed: a rank from 0 to 1 (2 x 1",
        ),
        (" {0: [send to 2]}", "5:15: expect.calls.0[0]: found 'send to 2'; allowed: a rank from 0 to 1 after 'to'"),
        (" ['send to {rank + 1}']", "5:11: expect.calls[0]: found 'send to 2'; allowed: a rank from 0 to 1 after 'to'"),
        (" barrier", "5:10: expect.calls: found 'barrier'; allowed: a list of calls, such as "),
        (" [3]", "5:11: expect.calls[0]: found the number 3; allowed: a call, such as all_reduce SUM float32[45]"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, calls: str, message: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        load_scenario(scenario(tmp_path, calls))
    assert f"{tmp_path}/scenario.yaml:{message}" in refusal.value.message


def test_calls_may_be_those_of_a_snapshot_and_are_dumped_as_that(tmp_path: Path) -> None:
    loaded = load_scenario(scenario(tmp_path, " snapshot"))
    assert loaded.expect.extra["calls"] == "snapshot"
    assert "calls: snapshot" in dump_scenario(loaded)


@pytest.mark.parametrize("word", ["snapshots", "Snapshot", "barrier"])
def test_other_text_in_the_place_of_calls_is_refused(tmp_path: Path, word: str) -> None:
    with pytest.raises(ScenarioError) as refusal:
        load_scenario(scenario(tmp_path, f" {word}"))
    meant = "" if word == "barrier" else " (did you mean 'snapshot'?)"
    assert golden(1, f"{word!r}", meant) in str(refusal.value)
