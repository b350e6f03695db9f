"""Replays of programs that were made by hand: what is hidden, what is not, who waits, and cores that are shared."""

from __future__ import annotations

import pytest

from lab.errors import LabError
from lab.features.projection.replay import (
    Action,
    Begin,
    Clock,
    Key,
    Machine,
    Replayed,
    Transfer,
    Wait,
    Work,
    Working,
    World,
    machine_of,
    replay_world,
)
from tests.golden import golden

A, B = Key("0", 0), Key("0", 1)


def reduced(*keys: Key, ranks: int = 2) -> dict[Key, Transfer]:
    return {key: Transfer("all_reduce", tuple(range(ranks)), 4e6, "0", "backward") for key in keys}


def replayed(programs: list[list[Action]], seconds: dict[Key, float], **more: object) -> Replayed:
    transfers = reduced(*seconds, ranks=len(programs))
    turns = {rank: [actions] for rank, actions in enumerate(programs)}
    fields = {"common": frozenset({"0"}), **more}
    return replay_world(World(turns=turns, transfers=transfers, seconds=seconds, **fields))  # type: ignore[arg-type]


def test_a_blocking_call_is_added_to_the_work() -> None:
    found = replayed([[Work(0.03, ""), Begin(A), Wait(A)]] * 2, {A: 0.02})
    assert found.step_s == pytest.approx(0.05)
    assert (found.own_s, found.exposed_s, found.waiting_s, found.hidden_s) == pytest.approx((0.03, 0.02, 0, 0))


def test_what_runs_beside_backward_is_hidden_as_far_as_there_is_work() -> None:
    program: list[Action] = [Work(0.03, ""), Begin(A), Work(0.015, "backward"), Wait(A)]
    found = replayed([program] * 2, {A: 0.02})
    assert found.step_s == pytest.approx(0.05)
    assert (found.exposed_s, found.hidden_s) == pytest.approx((0.005, 0.015))

    hidden = replayed([program] * 2, {A: 0.01})
    assert hidden.step_s == pytest.approx(0.045)
    assert (hidden.exposed_s, hidden.hidden_s) == pytest.approx((0, 0.01))


def test_calls_of_one_group_go_one_after_the_other() -> None:
    program: list[Action] = [Begin(A), Begin(B), Work(0.01, ""), Wait(A), Wait(B)]
    assert replayed([program] * 2, {A: 0.02, B: 0.03}).step_s == pytest.approx(0.05)


def test_a_group_with_two_threads_carries_two_calls_at_once() -> None:
    keys = [Key("0", number) for number in range(3)]
    program: list[Action] = [*map(Begin, keys), Work(0.001, ""), *map(Wait, keys)]
    seconds = dict(zip(keys, (0.02, 0.03, 0.02), strict=True))
    assert replayed([program] * 2, seconds, at_once=2).step_s == pytest.approx(0.04)


def test_a_call_is_over_for_each_rank_when_it_was_on_record() -> None:
    program: list[Action] = [Begin(A), Wait(A), Work(0.01, "")]
    found = replayed([program] * 2, {A: 0.02}, parts={A: [{0: 0.5, 1: 1.0}]})
    assert found.step_s == pytest.approx(0.03)
    assert found.waiting_s == pytest.approx(0.005)  # rank 0 is 10 ms early at the next call


def test_a_rank_waits_for_the_slower_one() -> None:
    def program(seconds: float) -> list[Action]:
        return [Work(seconds, ""), Begin(A), Wait(A)]

    found = replayed([program(0.01), program(0.03)], {A: 0.01})
    assert found.step_s == pytest.approx(0.04)
    assert found.waiting_s == pytest.approx(0.01)  # 20 ms of one rank, none of the other


def test_all_copies_meet_in_a_group_that_grows_and_each_has_its_own_of_another() -> None:
    turns = {0: [[Work(0.01, ""), Begin(A), Wait(A)], [Work(0.03, ""), Begin(A), Wait(A)]]}
    apart = World(turns=turns, transfers=reduced(A, ranks=1), seconds={A: 0.0}, copies=8)
    together = World(turns=turns, transfers=reduced(A, ranks=1), seconds={A: 0.0}, copies=8, common=frozenset({"0"}))
    assert (replay_world(together).step_s, replay_world(together).waiting_s > 0) == (pytest.approx(0.03), True)
    assert replay_world(apart).waiting_s == 0  # one of eight is nearly always late, and here nobody waits for it


def test_a_pipeline_of_messages_goes_on_when_they_arrive() -> None:
    there, back = Key("0>1", 0), Key("1>0", 0)
    transfers = {there: Transfer("send", (0, 1), 1e3, "0", ""), back: Transfer("send", (1, 0), 1e3, "0", "")}
    turns: dict[int, list[list[Action]]] = {
        0: [[Work(0.01, ""), Begin(there), Begin(back), Wait(back)]],
        1: [[Begin(there), Wait(there), Work(0.02, ""), Begin(back)]],
    }
    found = replay_world(World(turns=turns, transfers=transfers, seconds={there: 0.005, back: 0.005}))
    assert found.step_s == pytest.approx(0.04)


def test_who_sends_first_thing_does_so_before_the_others_have_begun() -> None:
    there = Key("0>1", 0)
    turns: dict[int, list[list[Action]]] = {
        0: [[Begin(there), Work(0.01, "")]],
        1: [[Begin(there), Wait(there), Work(0.01, "")]],
    }
    transfers = {there: Transfer("send", (0, 1), 1e3, "0", "")}
    assert replay_world(World(turns=turns, transfers=transfers, seconds={there: 0.005})).step_s == pytest.approx(0.01)


def test_who_only_gives_does_not_wait_for_the_root() -> None:
    key = Key("0", 0)
    transfers = {key: Transfer("reduce", (0, 1), 1e3, "0", "", root=0)}
    turns: dict[int, list[list[Action]]] = {rank: [[Begin(key), Wait(key), Work(0.01, "")]] for rank in (0, 1)}
    found = replay_world(World(turns=turns, transfers=transfers, seconds={key: 0.02}))
    assert found.waiting_s + found.exposed_s < 0.02 * 2


def test_ranks_that_share_cores_take_longer_for_their_work() -> None:
    program: list[Action] = [Work(0.01, ""), Begin(A), Wait(A)]
    assert replayed([program] * 4, {A: 0.0}, machine=Machine(2)).step_s == pytest.approx(0.02)
    assert replayed([program] * 4, {A: 0.0}, machine=Machine(8)).step_s == pytest.approx(0.01)
    assert replayed([program] * 4, {A: 0.0}, machine=Machine(2), weight=2.0).step_s == pytest.approx(0.04)


def test_work_that_wants_no_core_is_not_slowed_by_those_who_do() -> None:
    program: list[Action] = [Work(0.01, "", idle_s=0.02), Begin(A), Wait(A)]
    assert replayed([program] * 4, {A: 0.0}, machine=Machine(2)).step_s == pytest.approx(0.04)
    idle: list[Action] = [Work(0.0, "", idle_s=0.02), Begin(A), Wait(A)]
    assert replayed([idle] * 8, {A: 0.0}, machine=Machine(2)).step_s == pytest.approx(0.02)


def test_transfers_take_the_cores_that_ranks_share() -> None:
    program: list[Action] = [Begin(A), Wait(A)]
    assert replayed([program] * 4, {A: 0.01}, machine=Machine(2)).step_s == pytest.approx(0.02)


def test_a_replay_says_the_same_every_time() -> None:
    turns = {rank: [[Work(0.01 * (1 + step), ""), Begin(A), Wait(A)] for step in range(5)] for rank in range(2)}
    world = World(turns=turns, transfers=reduced(A), seconds={A: 0.01}, common=frozenset({"0"}), copies=3)
    assert replay_world(world) == replay_world(world)


def test_a_program_that_nobody_goes_on_with_is_refused() -> None:
    waiting: list[Action] = [Begin(A), Wait(A)]
    with pytest.raises(LabError, match=golden(1)):
        replay_world(World(turns={0: [waiting]}, transfers=reduced(A), seconds={A: 0.01}))


def test_a_clock_of_shared_cores_runs_slower_while_more_work_than_there_are_cores() -> None:
    clock = Clock([Working([(0, 10), (0, 10), (5, 10), (5, 15)])], Machine(2))
    assert clock.between(0, 5) == pytest.approx(5)
    assert clock.between(5, 10) == pytest.approx(2.5)
    assert clock.between(10, 20) == pytest.approx(10)
    assert clock.between(-3, 0) == pytest.approx(3)


def test_what_wants_half_a_core_counts_half() -> None:
    clock = Clock([Working([(0, 10)] * 2), Working([(0, 10)] * 4, 0.5)], Machine(2))
    assert clock.between(0, 10) == pytest.approx(5)


def test_without_cores_on_record_a_clock_is_a_clock() -> None:
    clock = Clock([Working([(0, 10)] * 9)], None)
    assert clock.between(2, 7) == 5


def test_who_runs_less_than_the_ranks_leave_each_other_is_not_alone_on_the_machine() -> None:
    own = [Working([(0.0, 10.0)] * 4)]
    assert machine_of(own, cores=2, part=0.5).others == pytest.approx(0, abs=0.1)
    assert machine_of(own, cores=2, part=0.25).others == pytest.approx(4, abs=0.1)
    clock = Clock(own, Machine(2, others=4))
    assert clock.between(0, 10) == pytest.approx(2.5)


def test_others_on_a_machine_slow_every_rank_down() -> None:
    program: list[Action] = [Work(0.01, ""), Begin(A), Wait(A)]
    assert replayed([program] * 2, {A: 0.0}, machine=Machine(2, others=2)).step_s == pytest.approx(0.02)
