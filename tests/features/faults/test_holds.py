"""The points at which a worker is held: counted, told, waited at, and what it does before it goes on."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from lab.features.faults.on_node import holds as subject
from lab.features.faults.on_node.holds import AFTER, BEFORE, CALL, Holds, Point, describe_tensors
from lab.node.recorder import phases
from tests.golden import golden
from tests.late import torch

Told = list[tuple[int, int, int, Any]]


@pytest.fixture
def armed(pipe: tuple[int, int]) -> Callable[..., tuple[Holds, Told]]:
    """Holds whose agent lets everybody go on at once; what it was told: hold, trigger, count and value."""

    def armed(*triggers: dict[str, Any], deeds: dict[int, dict[str, Any]] | None = None) -> tuple[Holds, Told]:
        told: Told = []

        def tell(hold: int, point: Point, nth: int, value: Any, _brought: Any) -> None:
            told.append((hold, point.trigger, nth, value))
            os.write(
                pipe[1], json.dumps({"hold": hold, "action": (deeds or {}).get(point.trigger, {})}).encode() + b"\n"
            )

        holds = Holds()
        holds.arm(triggers, pipe[0], 1, tell)
        return holds, told

    return armed


def test_nobody_is_held_where_nothing_is_armed() -> None:
    holds = Holds()
    holds.arm((), -1, 0, lambda *_: None)
    assert not holds.armed
    assert holds.count(CALL, "all_reduce") == 0
    holds.reach(CALL, "all_reduce", 1, BEFORE)


def test_a_call_is_held_at_its_count_and_its_edge_only(armed: Callable[..., tuple[Holds, Told]]) -> None:
    holds, told = armed(
        {"trigger": 0, "op": "all_reduce", "count": 2, "edge": "before"},
        {"trigger": 1, "op": "all_reduce", "count": 3, "edge": "after"},
        {"trigger": 2, "phase": "all_reduce", "count": 1},
    )
    for nth in (1, 2, 3, 4):
        assert holds.count(CALL, "all_reduce") == nth
        for edge in (BEFORE, AFTER):
            holds.reach(CALL, "all_reduce", nth, edge)
        assert holds.edges(CALL, "all_reduce", nth) == {2: {BEFORE}, 3: {AFTER}}.get(nth, set())
    assert holds.count(CALL, "broadcast") == 0
    assert told == [(1, 0, 2, None), (2, 1, 3, None)]


def test_two_triggers_at_one_point_hold_one_after_the_other(armed: Callable[..., tuple[Holds, Told]]) -> None:
    holds, told = armed(*({"trigger": number, "op": "send", "count": 1} for number in (4, 7)))
    holds.reach(CALL, "send", holds.count(CALL, "send"), BEFORE)
    assert told == [(1, 4, 1, None), (2, 7, 1, None)]


def test_every_note_of_a_name_holds_and_small_values_are_told(armed: Callable[..., tuple[Holds, Told]]) -> None:
    holds, told = armed({"trigger": 0, "note": "step"})
    for value in (3, [1, 2], "x" * 5000):
        holds.noted("step", value)
    holds.noted("loss", 1)
    assert told == [(1, 0, 1, 3), (2, 0, 2, None), (3, 0, 3, None)]


def test_whoever_is_held_waits_for_an_answer_to_its_own_hold(pipe: tuple[int, int]) -> None:
    holds, told, passed = Holds(), threading.Event(), threading.Event()
    holds.arm([{"trigger": 0, "op": "send"}], pipe[0], 0, lambda *_: told.set())
    thread = threading.Thread(target=lambda: (holds.reach(CALL, "send", 1, BEFORE), passed.set()))
    thread.start()
    assert told.wait(10)
    os.write(pipe[1], b'{"hold": 9, "action": {}}\nno JSON\n[]\n{"hold": 1, ')
    assert not passed.wait(0.05)
    os.write(pipe[1], b'"action": {}}\n')
    thread.join(10)
    assert passed.is_set()


def test_where_the_agent_is_gone_nobody_is_held_any_more(pipe: tuple[int, int]) -> None:
    holds = Holds()
    holds.arm([{"trigger": 0, "op": "send"}], pipe[0], 0, lambda *_: None)
    os.close(pipe[1])
    holds.reach(CALL, "send", 1, BEFORE)
    assert not holds.armed


def test_a_fork_is_not_held(armed: Callable[..., tuple[Holds, Told]]) -> None:
    holds, told = armed({"trigger": 0, "op": "send"})
    holds.forked()
    assert holds.count(CALL, "send") == 0
    holds.reach(CALL, "send", 1, BEFORE)
    assert told == []


def test_phases_within_each_other_end_in_turn(
    armed: Callable[..., tuple[Holds, Told]], monkeypatch: pytest.MonkeyPatch
) -> None:
    holds, told = armed(
        {"trigger": 0, "phase": "zero_grad", "count": 2, "edge": "before"},
        {"trigger": 1, "phase": "zero_grad", "count": 2, "edge": "after"},
        {"trigger": 2, "phase": "zero_grad", "count": 1, "edge": "after"},
    )
    seen: list[tuple[bytes, bool]] = []
    for name in ("_emit", "_write", "_watchers"):
        monkeypatch.setattr(phases, name, {})
    phases.write_with(lambda name, ended: seen.append((name, ended)))
    phases.watch_phases(["zero_grad"], holds.begin_phase, holds.end_phase)
    phases.wrap_phase(b"zero_grad", phases.wrap_phase(b"zero_grad", lambda: None))()
    assert [trigger for _, trigger, *_ in told] == [0, 1, 2]
    assert seen == [(b"zero_grad", False)] * 2 + [(b"zero_grad", True)] * 2


def test_a_held_call_is_waited_for_and_what_was_raised_goes_out_of_it(
    armed: Callable[..., tuple[Holds, Told]],
) -> None:
    deeds = {1: {"raise": {"error": "ValueError", "message": "asked for"}}}
    holds, told = armed(
        {"trigger": 0, "op": "barrier", "count": 1, "edge": "after"},
        {"trigger": 1, "op": "barrier", "count": 2},
        deeds=deeds,
    )
    done: list[str] = []

    class Work:
        def wait(self) -> None:
            done.append(f"waited, {len(told)} held")

    class Group:
        def barrier(self, _: object = None) -> Work:
            done.append("called")
            return Work()

        def monitored_barrier(self) -> None:
            done.append("other")

    holds.hold_calls(Group)
    group = Group()
    group.barrier()
    group.monitored_barrier()
    with pytest.raises(ValueError, match="asked for"):
        group.barrier()
    assert done == ["called", "waited, 0 held", "other"]
    assert told == [(1, 0, 1, None), (2, 1, 2, None)]


# -- what it does itself


@pytest.mark.parametrize("layout", ["whole", "transposed", "strided"])
def test_one_element_becomes_nan_wherever_it_lies(layout: str) -> None:
    tensor = {
        "whole": torch.zeros(3, 4),
        "transposed": torch.zeros(4, 3).t(),
        "strided": torch.zeros(6, 8)[::2, ::2],
    }[layout].requires_grad_()
    subject.perform_action({"nan": {"element": 5}}, [torch.zeros(0), tensor], 0)
    places = [tuple(place) for place in torch.isnan(tensor).nonzero().tolist()]
    assert places == [(1, 1)]
    assert tensor._version == 0


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float64", "int64", "uint8"])
def test_a_flipped_bit_is_that_one_and_flipped_twice_is_none(name: str) -> None:
    dtype = getattr(torch, name)
    for bit in (0, torch.zeros(1, dtype=dtype).element_size() * 8 - 1):
        tensor = torch.ones(2, 2, dtype=dtype).t()
        before = tensor.clone()
        subject.perform_action({"flip": {"element": 2, "bit": bit}}, [tensor], 0)
        assert (tensor != before).sum() == 1
        assert tensor[1, 0] != before[1, 0]
        subject.perform_action({"flip": {"element": 2, "bit": bit}}, [tensor], 0)
        assert tensor.equal(before)


def test_the_exponent_of_a_float_is_where_its_bit_30_is() -> None:
    tensor = torch.ones(1)
    subject.perform_action({"flip": {"element": 0, "bit": 30}}, [tensor], 0)
    assert tensor.item() == math.inf


def test_what_a_call_brings_is_told_so_that_what_does_not_fit_can_be_refused() -> None:
    told = describe_tensors([torch.zeros(2, dtype=torch.int32), torch.zeros(3, 1, dtype=torch.complex64)])
    assert told == (
        {"elements": 2, "dtype": "int32", "bits": 32},
        {"elements": 3, "dtype": "complex64", "bits": 32},
    )


@pytest.mark.parametrize(
    ("deed", "types", "why"),
    [
        ({"nan": {"element": 0}}, ["int32"], "cannot be converted"),
        ({"flip": {"element": 0, "bit": 40}}, ["float32"], "a number of 32 bits has no bit 40"),
        ({"nan": {"element": 2}}, ["float32"], "the call has fewer elements"),
        ({"nan": {"element": 0}}, [], "the call has fewer elements"),
    ],
)
def test_what_cannot_be_changed_is_said_and_left(
    deed: dict[str, Any], types: list[str], why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    tensors = [torch.zeros(2, dtype=getattr(torch, name)) for name in types]
    subject.perform_action(deed, tensors, 3)
    number = next(iter(deed.values()))["element"]
    said = capfd.readouterr().err
    assert golden(1, number) in said
    assert why in said
    assert not any(tensor.any() for tensor in tensors)


def test_no_other_thread_runs_while_a_hang_has_the_lock() -> None:
    ticks, over = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not over.wait(0.001):
            ticks += 1

    thread, interval = threading.Thread(target=tick), sys.getswitchinterval()
    thread.start()
    sys.setswitchinterval(60)  # nobody is asked to give the lock away
    try:
        before = ticks
        subject.perform_action({"hang": {"for_s": 0.1, "lock": True}}, (), 0)
        assert ticks == before
    finally:
        sys.setswitchinterval(interval)
        over.set()
        thread.join(10)


def test_pauses_come_again_and_again_until_their_time_is_over() -> None:
    said = {"every_s": 0.01, "last_s": 0.01, "seed": 7, "for_s": 0.1}
    thread = subject.begin_pauses(said, 0)
    thread.join(10)
    assert not thread.is_alive()
