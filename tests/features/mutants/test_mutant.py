"""Mutants as text, and how they are drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.errors import UsageError
from lab.features.mutants.candidates import Candidates, Event, read_events
from lab.features.mutants.mutate import Outcome, _Trials, describe_mutant
from lab.features.mutants.on_node.mutant import KINDS, Mutant, parse_mutant
from lab.features.mutants.option import check_mutant
from lab.record.read import Record
from tests.diagnosis.truth import find_truth


def call(rank: int, target: str, nth: int, at: str, **facts: object) -> Event:
    usual = {"g": "0", "size": 3, "dtype": "float32", "elements": 4, "async": False, "red": "SUM"}
    return Event(rank=rank, target=target, nth=nth, at=at, via=target, facts={**usual, **facts})


LOOP_LINE = {
    "n": "all_reduce",
    "nth": 1,
    "who": 0,
    "via": "all_reduce",
    "at": "t.py:5",
    **call(0, "all_reduce", 1, "").facts,
}
LOOP = [
    event
    for rank in range(3)
    for event in (
        call(rank, "all_reduce", 1, "t.py:5"),
        call(rank, "all_reduce", 2, "t.py:6"),
        call(rank, "all_reduce", 3, "t.py:6"),
        call(rank, "broadcast", 1, "t.py:7", root=0),
        call(rank, "barrier", 1, "t.py:9", elements=0, dtype=""),
    )
]


@given(
    st.sampled_from([(kind, target) for kind, row in KINDS.items() for target in row.targets]),
    st.lists(st.integers(0, 99), max_size=3, unique=True),
    st.integers(0, 1000),
    st.sampled_from(["", "train.py:9"]),
)
def test_a_mutant_is_read_as_it_is_written(pair: tuple[str, str], ranks: list[int], nth: int, at: str) -> None:
    mutant = Mutant(*pair, tuple(ranks), nth, at, "2" if KINDS[pair[0]].parameter else "")
    assert parse_mutant(mutant.text) == mutant


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "kind"),
        ("jump all_reduce", "jump"),
        ("skip", "after skip"),
        ("skip forward rank=1", "forward"),
        ("skip all_reduce rank=x", "rank=x"),
        ("skip all_reduce nth=0", "nth=0"),
        ("skip all_reduce when=1", "when=1"),
        ("root broadcast rank=1", "to="),
    ],
)
def test_what_is_no_mutant_is_refused_with_what_was_found(text: str, named: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_mutant(text)
    assert named in refused.value.message


def test_each_drawn_mutant_fits_its_event_and_can_be_read() -> None:
    candidates, random = Candidates(LOOP), Random(3)
    for _ in range(300):
        drawn = candidates.draw(random)
        assert drawn is not None
        mutant, event = drawn
        assert parse_mutant(mutant.text) == mutant
        assert (event.target, event.nth, (event.rank,)) == (mutant.target, mutant.nth, mutant.ranks)


def test_a_swap_is_drawn_only_for_calls_that_differ() -> None:
    candidates = Candidates(LOOP, ["swap"])
    assert {(one.target, one.nth) for one in candidates.by_kind["swap"]} == {("all_reduce", 3), ("broadcast", 1)}


def test_after_a_skipped_call_each_line_up_to_the_first_misfit_is_right() -> None:
    candidates = Candidates(LOOP)
    event = candidates.by_rank[1][0]
    truth = find_truth(Mutant("skip", "all_reduce", (1,)), event, candidates)
    assert truth.lines == {"t.py:5", "t.py:6", "t.py:7"}
    assert truth.culprits == (frozenset({1}),)
    assert truth.innocent == {0, 2}


def test_of_a_message_nobody_need_be_blamed() -> None:
    messages = [call(0, "send", 1, "t.py:3", peer=1, tag=0), call(1, "recv", 1, "t.py:5", peer=0, tag=0)]
    candidates = Candidates([*messages, call(2, "barrier", 1, "t.py:9")])
    truth = find_truth(Mutant("tag", "send", (0,), to="7"), messages[0], candidates)
    assert truth.culprits == (frozenset({0}), frozenset())
    assert truth.lines >= {"t.py:3", "t.py:5"}


def test_a_mutant_is_described_with_its_line() -> None:
    assert (
        describe_mutant(Mutant("skip", "all_reduce", (1,), 2), "m.py:4") == "rank 1 skips its 2nd all_reduce at m.py:4"
    )
    each = Mutant("root", "broadcast", (), 0, to="2")
    assert describe_mutant(each, "m.py:4") == "each rank passes the root 2 to the broadcast at m.py:4"


@pytest.mark.parametrize(("to", "nobody"), [("1", True), ("2", False)])
def test_nobody_may_be_named_for_a_call_in_a_group_of_two(to: str, nobody: bool) -> None:
    events = [*LOOP, call(1, "barrier", 2, "t.py:10", g="1", size=2), call(1, "barrier", 3, "t.py:10", g="2", size=3)]
    event = next(one for one in events if (one.rank, one.target, one.nth) == (1, "all_reduce", 1))
    truth = find_truth(Mutant("group", "all_reduce", (1,), to=to), event, Candidates(events))
    assert (frozenset() in truth.culprits) == nobody


@pytest.mark.parametrize(
    ("mutant", "silent"),
    [
        (Mutant("shape", "all_reduce", (1,), to="more"), False),
        (Mutant("shape", "all_gather", (1,), to="more"), True),
        (Mutant("exit", "all_reduce", (1,), to="0"), False),
        (Mutant("exit", "step", (1,), to="0"), True),
        (Mutant("repeat", "send", (1,)), True),
        (Mutant("nan", "all_reduce", (1,)), False),
        (Mutant("nan", "send", (1,)), True),
    ],
)
def test_what_no_other_rank_notices_may_be_passed_over(mutant: Mutant, silent: bool) -> None:
    """A group of one, an exit after the last call, a message that anybody may send, and a NaN as data."""
    events = [
        *LOOP,
        call(1, "all_gather", 1, "t.py:8", g="1", size=1),
        call(1, "send", 1, "t.py:8", peer=0),
        call(0, "recv", 1, "t.py:8", peer=-1),
        Event(rank=1, target="step", nth=1, at="t.py:9", facts={}),
    ]
    event = next(one for one in events if (one.rank, one.target) == (1, mutant.target))
    assert find_truth(mutant, event, Candidates(events)).silent == silent


@pytest.mark.parametrize(
    ("mutant", "line", "silent"),
    [
        (Mutant("skip", "step", (1,)), "t.py:3", False),
        (Mutant("skip", "step", (1,), 2), "t.py:3", True),
        (Mutant("no_sync", "forward", (1,)), "t.py:1", False),
        (Mutant("no_sync", "forward", (1,), 2), "t.py:1", True),
    ],
)
def test_a_step_or_a_forward_without_a_reduction_concerns_no_other_rank(
    mutant: Mutant, line: str, *, silent: bool
) -> None:
    def training(rank: int) -> list[Event]:
        reduction = call(rank, "all_reduce", 1, "t.py:2")
        phases = [("forward", 1, "t.py:1"), ("step", 1, "t.py:3"), ("forward", 2, "t.py:1"), ("step", 2, "t.py:3")]
        first, *rest = [Event(rank=rank, target=name, nth=nth, at=at, facts={}) for name, nth, at in phases]
        return [first, replace(reduction, via="Tensor.backward"), *rest]

    events = [event for rank in range(3) for event in training(rank)]
    event = next(one for one in events if (one.rank, one.target, one.nth) == (1, mutant.target, mutant.nth))
    truth = find_truth(mutant, event, Candidates(events))
    assert truth.silent == silent
    assert line in truth.lines


class _Forger:
    """A program that writes lines into its trace."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def observe(self) -> tuple[Sequence[Event], list[Outcome]]:
        return read_events(self._record), []


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"n": "all_reduce", "nth": "x", "who": [1], "at": "t.py:5"},
        {**LOOP_LINE, "size": 10**15},
        {**LOOP_LINE, "dtype": []},
    ],
)
def test_forged_calls_are_refused(line: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "rank0.jsonl").write_text(json.dumps({"k": "mutable", **line}, separators=(",", ":")) + "\n")
    trials = _Trials(5, 0, [*KINDS], 0.0, lambda _: None)

    trials.work(_Forger(Record(path=tmp_path)), first=True)  # type: ignore[arg-type]

    assert isinstance(trials._failure, UsageError)
