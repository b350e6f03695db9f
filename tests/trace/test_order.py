"""Steps come in the order of cause: the same whatever the clocks said, and never before what they needed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.trace.model import Call, Group, RankTrace, Trace
from lab.trace.steps import Step, match_steps
from tests.report.example_steps import steps_of
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit
_LONGEST_S = 0.3


@dataclass
class Program:
    """Ranks that run a program with delays that are drawn from a seed; what they call does not depend on them."""

    world_size: int
    seed: int
    clocks: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    calls: dict[int, list[Call]] = field(default_factory=lambda: defaultdict(list))
    seqs: dict[tuple[int, str], int] = field(default_factory=lambda: defaultdict(int))
    posted: list[tuple[int, Call]] = field(default_factory=list)
    """Receives that nobody has waited for: who sends, and the call."""
    tags: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def later(self) -> float:
        """A delay."""
        return self.random.uniform(1e-6, _LONGEST_S)

    def begin(
        self, rank: int, op: str, group: str = "0", peer: int | None = None, tag: int = 0, *, handle: bool = False
    ) -> Call:
        """A rank calls something, a while after what it did last."""
        self.clocks[rank] += self.later()
        seq = None
        if op not in ("send", "recv"):
            seq = self.seqs[rank, group] = self.seqs[rank, group] + 1
        index = len(self.calls[rank]) + 1
        handle = handle and seq is not None
        call = Call(rank, index, op, group, seq, self.clocks[rank], peer=peer, tag=tag, asynchronous=handle)
        self.calls[rank].append(call)
        return call

    def wait(self, call: Call, *needed: Call) -> None:
        """A rank waits for a call that needs others to have begun."""
        call.end = max(self.clocks[call.rank], *(other.begin for other in (call, *needed))) + self.later()
        self.clocks[call.rank] = call.end

    def collective(self, ranks: Sequence[int], *, handle: bool) -> None:
        """All ranks of a group reduce."""
        calls = [self.begin(rank, "all_reduce", ",".join(map(str, ranks)), handle=handle) for rank in ranks]
        for call in calls:
            if handle:  # it is over at any time, and nobody waits for it
                call.end = max(one.begin for one in calls) + self.later()
            else:
                self.wait(call, *calls)

    def message(self, sender: int, receiver: int) -> None:
        """A rank sends, another receives, and both wait."""
        send, receive = self.begin(sender, "send", peer=receiver), self.begin(receiver, "recv", peer=sender)
        self.wait(send, receive)
        self.wait(receive, send)

    def shift(self, ranks: Sequence[int]) -> None:
        """Each rank passes something on to the next in a ring, with isend, recv, wait."""
        sends = {rank: self.begin(rank, "send", peer=ranks[(i + 1) % len(ranks)]) for i, rank in enumerate(ranks)}
        receives = {rank: self.begin(rank, "recv", peer=ranks[i - 1]) for i, rank in enumerate(ranks)}
        for i, rank in enumerate(ranks):
            self.wait(receives[rank], sends[ranks[i - 1]])
            self.wait(sends[rank], receives[ranks[(i + 1) % len(ranks)]])

    def post(self, sender: int, receiver: int) -> None:
        """A rank has a receive under way, and goes on."""
        self.tags += 1
        self.posted.append((sender, self.begin(receiver, "recv", peer=sender, tag=self.tags)))

    def send_posted(self) -> None:
        """What the oldest receive under way waits for is sent, and both wait."""
        if self.posted:
            sender, receive = self.posted.pop(0)
            send = self.begin(sender, "send", peer=receive.rank, tag=receive.tag)
            self.wait(send, receive)
            self.wait(receive, send)

    def trace(self) -> Trace:
        """What is on record of it; no two clocks agree."""
        skewed = {rank: self.random.uniform(-5, 5) for rank in range(self.world_size)}
        for calls in self.calls.values():
            for call in calls:
                call.begin += skewed[call.rank]
                call.end = None if call.end is None else call.end + skewed[call.rank]
        names = {call.group for calls in self.calls.values() for call in calls if call.seq is not None}
        groups = {name: Group(name, tuple(map(int, name.split(",")))) for name in names}
        groups["0"] = Group("0", tuple(range(self.world_size)), description="default_pg")
        ranks = {rank: RankTrace(rank, "compiled", calls=self.calls[rank]) for rank in range(self.world_size)}
        return Trace(self.world_size, ranks, groups)


Act = Callable[[Program], None]


def acts(world_size: int, *, posting: bool) -> st.SearchStrategy[list[Act]]:
    """Programs, as what happens in them in some order in which it can."""
    ranks = st.permutations(range(world_size))
    some = st.lists(st.sampled_from(range(world_size)), min_size=2, unique=True).map(sorted)
    pairs = ranks.map(lambda order: (order[0], order[1]))
    kinds = [
        st.builds(lambda who, handle: lambda p: p.collective(who, handle=handle), some, st.booleans()),
        pairs.map(lambda ends: lambda p: p.message(*ends)),
        some.map(lambda who: lambda p: p.shift(who)),
    ]
    if posting:
        kinds += [pairs.map(lambda ends: lambda p: p.post(*ends)), st.just(lambda p: p.send_posted())]
    return st.lists(st.one_of(kinds), max_size=25)


def ran(world_size: int, program: Sequence[Act], seed: int) -> tuple[Trace, list[Step]]:
    """The trace and the steps of one run of a program."""
    run = Program(world_size, seed)
    for act in program:
        act(run)
    while run.posted:
        run.send_posted()
    trace = run.trace()
    return trace, match_steps(trace)


def told(steps: Sequence[Step]) -> list[tuple[str, int | None, list[tuple[int, int]]]]:
    """Steps without times."""
    return [(s.title, s.round, sorted((call.rank, call.index) for call in s.calls.values())) for s in steps]


def assert_in_order(trace: Trace, steps: Sequence[Step], *, begun: bool) -> None:
    """No call is in a step before one that its rank had behind it; if asked, nor before one that it had begun."""
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    number = {(call.rank, call.index): step.number for step in steps for call in step.calls.values()}
    assert len(number) == sum(len(rank.calls) for rank in trace.ranks.values())
    for rank in trace.ranks.values():
        for i, one in enumerate(rank.calls):
            for other in rank.calls[i + 1 :]:
                behind = not one.asynchronous if one.seq else one.end is not None and one.end <= other.begin
                if behind or (begun and (one.seq or other.seq)):
                    assert number[one.rank, one.index] < number[other.rank, other.index], (one, other)


@given(st.data(), st.integers(2, 5))
@settings(max_examples=120, deadline=None)
def test_the_order_of_a_program_is_that_of_cause_in_every_run(data: st.DataObject, world_size: int) -> None:
    program = data.draw(acts(world_size, posting=False))
    trace, steps = ran(world_size, program, 0)
    assert_in_order(trace, steps, begun=True)
    for seed in range(1, 5):
        assert told(ran(world_size, program, seed)[1]) == told(steps)


@given(st.data(), st.integers(2, 5))
@settings(max_examples=120, deadline=None)
def test_receives_that_are_under_way_for_long_come_when_they_are_sent(data: st.DataObject, world_size: int) -> None:
    program = data.draw(acts(world_size, posting=True))
    trace, steps = ran(world_size, program, 0)
    assert_in_order(trace, steps, begun=False)
    for seed in range(1, 5):
        assert told(ran(world_size, program, seed)[1]) == told(steps)


def shown(steps: Sequence[Step]) -> list[str]:
    """Titles, with the round of each message that has one."""
    return [f"{step.round}: {step.title}" if step.round else step.title for step in steps]


@pytest.mark.parametrize("seed", range(5))
def test_a_token_is_passed_on_by_whoever_has_it(seed: int) -> None:
    _, steps = ran(4, [lambda p: p.message(0, 1), lambda p: p.message(1, 2), lambda p: p.message(2, 3)], seed)
    assert shown(steps) == ["send 0 → 1", "send 1 → 2", "send 2 → 3"]


@pytest.mark.parametrize("seed", range(5))
def test_a_ring_goes_in_rounds_that_are_counted_anew_after_a_collective(seed: int) -> None:
    ring: Act = lambda p: p.shift(range(3))  # noqa: E731
    _, steps = ran(3, [ring, ring, lambda p: p.collective(range(3), handle=False), ring], seed)
    sends = ["send 0 → 1", "send 1 → 2", "send 2 → 0"]
    assert shown(steps) == [
        *(f"1: {send}" for send in sends), *(f"2: {send}" for send in sends),
        "all_reduce #1 in [0, 1, 2]", *(f"1: {send}" for send in sends),
    ]  # fmt: skip


def test_what_all_send_at_once_to_both_sides_is_a_round_for_each_side(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in range(3):
        left, right, start = (rank - 1) % 3, (rank + 1) % 3, 7 - 3 * rank
        made.call(rank, "recv", start, 30, (), [[1.0]], peer=left, tag=1, via="irecv")
        made.call(rank, "recv", start + 1, 31, (), [[1.0]], peer=right, tag=2, via="irecv")
        made.call(rank, "send", start + 2, 32, [[1.0]], peer=right, tag=1, via="isend")
        made.call(rank, "send", start + 3, 33, [[1.0]], peer=left, tag=2, via="isend")
    assert shown(steps_of(made)) == [
        "1: send 0 → 1 tag 1", "1: send 1 → 2 tag 1", "1: send 2 → 0 tag 1",
        "2: send 0 → 2 tag 2", "2: send 1 → 0 tag 2", "2: send 2 → 1 tag 2",
    ]  # fmt: skip


def test_messages_are_in_the_order_in_which_they_are_taken(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    made.call(0, "send", 1, 20, [[1.0]], peer=1, tag=1, via="isend")
    made.call(0, "send", 2, 21, [[2.0]], peer=1, tag=2, via="isend")
    made.call(1, "recv", 3, 5, (), [[2.0]], peer=0, tag=2)
    made.call(1, "recv", 6, 8, (), [[1.0]], peer=0, tag=1)
    assert shown(steps_of(made)) == ["send 0 → 1 tag 2", "send 0 → 1 tag 1"]


def test_a_receive_from_anybody_is_where_it_was_met(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for start, sender in ((10, 2), (20, 1), (30, 2)):
        number = made.call(0, "recv", start, None, (), [[1.0]], peer=-1)
        made.line(0, "end", start + 5, i=number, peer=sender)
    made.call(1, "send", 1, 25, [[1.0]], peer=0)
    made.call(2, "send", 2, 15, [[1.0]], peer=0)
    made.call(2, "send", 16, 35, [[1.0]], peer=0)
    assert shown(steps_of(made)) == ["send 2 → 0", "send 1 → 0", "send 2 → 0"]


def test_what_goes_in_a_circle_is_shown_all_the_same(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    for name in ("1", "2"):
        made.group(name, [0, 1])
    for rank, order in ((0, ("1", "2")), (1, ("2", "1"))):  # no run can do this and end: such traces are damaged
        for place, group in enumerate(order):
            made.call(rank, "all_reduce", 10 * place + rank, 10 * place + 5, [[1.0]], [[2.0]], group=group)
        made.call(rank, "barrier", 50, 60)
    steps = steps_of(made)
    assert [step.group.name for step in steps] == ["1", "2", "0"]


def test_a_run_that_hangs_keeps_every_step(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in range(3):
        made.call(rank, "recv", 5 + rank, None, (), peer=(rank + 1) % 3)
    made.call(0, "send", 2, None, [[1.0]], peer=2, tag=9)
    made.call(0, "all_reduce", 1, 1.5, [[1.0]], [[1.0]])
    assert sorted(step.title for step in steps_of(made)) == [
        "all_reduce #1", "send 0 → 2", "send 0 → 2 tag 9", "send 1 → 0", "send 2 → 1",
    ]  # fmt: skip


def test_collectives_of_one_group_are_in_their_own_order_even_where_traces_lack_some(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    for number in range(5):
        for rank in (0, 1):
            made.call(rank, "all_reduce", 10 * number + rank, 10 * number + 5, [[1.0]], [[2.0]])
    for rank, lost in ((0, {1, 2}), (1, {3})):
        made.lines[rank] = [line for line in made.lines[rank] if line.get("i") not in lost]
    assert [step.seq for step in steps_of(made)] == [1, 2, 3, 4, 5]
