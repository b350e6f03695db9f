"""Kinds that are done to ranks: as files say them, by whom they are done, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.errors import ScenarioError, UsageError
from lab.features.faults.fault import Fault, When, fault_data, refuse_faults
from lab.features.faults.kinds.ranks import Flip, Hang, Loader, Nan, Pauses, RankFault, Signal
from lab.features.faults.on_node import actions
from lab.plan.cluster import Shape
from lab.plan.plan import unmade_cluster
from lab.spec.load import dump_scenario, load_scenario
from tests.golden import golden

AT_A_CALL = When(rank=1, op="all_reduce", count=3)


class RanksOfARun:
    """A target that answers as if each deed were done."""

    ranks: Mapping[int, str] = {0: "node0", 1: "node1"}
    addresses: Mapping[str, str] = {"node0": "10.0.0.1", "node1": "10.0.0.2", "node2": "10.0.0.3"}

    def __init__(self, state: str = "T") -> None:
        self.state = state
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    def running(self, node: str) -> bool:
        return node != "node0"

    def ask(self, node: str, function: str, said: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((node, function, dict(said)))
        return {"in_force": True, "state": self.state if node == "node1" else "ended"}


def read(folder: Path, fault: str) -> Fault:
    (folder / "s.py").write_text("")
    (folder / "s.yaml").write_text(f"script: s.py\nnodes: 2\nnproc_per_node: 1\nfaults: [{fault}]\n")
    scenario = load_scenario(folder / "s.yaml")
    (folder / "again.yaml").write_text(dump_scenario(scenario))
    assert load_scenario(folder / "again.yaml").extra == scenario.extra
    [found] = scenario.extra["faults"]
    return found


@pytest.mark.parametrize(
    ("said", "meant", "written"),
    [
        ("signal: 1", Signal(rank=1), 1),
        ("signal: {rank: 1, name: SIGSTOP}", Signal(rank=1, name="SIGSTOP"), {"rank": 1, "name": "SIGSTOP"}),
        ("hang: 1", Hang(rank=1), 1),
        ("hang: {rank: 1, lock: false}", Hang(rank=1, lock=False), {"rank": 1, "lock": False}),
        ("flip: {rank: 1, bit: 3}", Flip(rank=1, bit=3), {"rank": 1, "bit": 3}),
        ("pauses: {rank: 1, last: 50ms}", Pauses(rank=1, last_s=0.05), {"rank": 1, "last": "0.05s"}),
        ("loader: 1", Loader(rank=1), 1),
    ],
)
def test_a_rank_is_said_alone_or_with_more(tmp_path: Path, said: str, meant: RankFault, written: object) -> None:
    fault = read(tmp_path, f"{{{said}, when: {{rank: 1, op: all_reduce}}}}")
    assert fault.what == meant
    assert fault_data(fault)[fault.kind] == written


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("hang: node1", "faults[0].hang: found 'node1'; allowed: a rank from 0 to 1"),
        ("hang: {lock: false}", "without rank"),
        ("hang: 2", "allowed: a rank from 0 to 1"),
        ("signal: {rank: 1, name: SIGFOO}", "allowed: SIGKILL, SIGSTOP"),
        ("nan: {rank: 1, elements: 3}", "unknown key 'elements' (did you mean 'element'?)"),
    ],
)
def test_what_is_no_rank_is_refused(tmp_path: Path, said: str, problem: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        read(tmp_path, f"{{{said}, when: {{rank: 1, op: all_reduce}}}}")
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Fault(what=Hang(rank=1), when=When(at_s=2)), "the trigger has to hold that rank"),
        (lambda: Fault(what=Hang(rank=0), when=AT_A_CALL), "has to name the same rank"),
        (lambda: Fault(what=Hang(rank=1), when=AT_A_CALL, until=When(at_s=2)), "cannot wait for `until`"),
        (lambda: Fault(what=Nan(rank=1), when=When(rank=1, phase="backward")), "changes the tensors of a call"),
        (lambda: Fault(what=Nan(rank=1), when=When(rank=1, op="barrier")), "changes the tensors of a call"),
        (lambda: Fault(what=Nan(rank=1), when=When(rank=1, op="recv")), "changes the tensors of a call"),
        (lambda: Fault(what=Flip(rank=1), when=When(rank=1, op="send", edge="after")), "changes the tensors of a call"),
    ],
)
def test_what_no_worker_can_do_itself_is_refused(make: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        make()


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (Nan(rank=1), "int64 has no NaN"),
        (Nan(rank=1, element=2), ""),
        (Nan(rank=1, element=5), "the call has 5 elements, but no element 5"),
        (Flip(rank=1, bit=63), ""),
        (Flip(rank=1, bit=63, element=4), "bfloat16 has no bit 63"),
    ],
)
def test_what_a_call_does_not_bring_cannot_be_changed(fault: RankFault, why: str) -> None:
    brought = [{"elements": 2, "dtype": "int64", "bits": 64}, {"elements": 3, "dtype": "bfloat16", "bits": 16}]
    assert fault.unfit(brought) == why


def test_a_worker_is_told_what_to_do_and_for_how_long() -> None:
    assert Fault(what=Hang(rank=1), when=AT_A_CALL).worker_actions == {"hang": {"lock": True, "for_s": None}}
    assert Fault(what=Hang(rank=1), when=AT_A_CALL, for_s=2.5).worker_actions == {"hang": {"lock": True, "for_s": 2.5}}
    assert Fault(what=Signal(rank=1), when=AT_A_CALL).worker_actions == {}


@pytest.mark.parametrize("why", ["the run does not record calls", "LAB_RECORDER is off"])
def test_calls_and_phases_need_the_recorder_and_notes_do_not(why: str) -> None:
    noted = Fault(what=Signal(rank=1), when=When(rank=1, note="step"))
    for fault in (
        Fault(what=Signal(rank=1), when=AT_A_CALL),
        Fault(what=Signal(rank=1), when=noted.when, until=AT_A_CALL),
    ):
        with pytest.raises(UsageError, match=golden(1, why)):
            refuse_faults([fault], "s", unmade_cluster(Shape(nodes=2), "c"), 2, 2, why)
    refuse_faults([noted], "s", unmade_cluster(Shape(nodes=2), "c"), 2, 2, why)


def test_a_signal_is_sent_where_the_rank_is_and_its_effect_is_read_back() -> None:
    target: Any = RanksOfARun()
    stop = Signal(rank=1, name="SIGSTOP")
    stop.apply(target)
    assert stop.read_back(target) == {"in_force": True, "state": "T"}
    stop.undo(target)
    said = {"rank": 1, "name": "SIGSTOP"}
    assert target.asked == [
        ("node1", "apply_signal", said),
        ("node1", "inspect_signal", said),
        ("node1", "inspect_signal", said),
        ("node1", "undo_signal", said),
    ]
    target.asked.clear()
    Signal(rank=1, name="SIGSEGV").undo(target)
    assert target.asked == []


def test_a_rank_that_no_run_has_is_a_sentence() -> None:
    context: Any = SimpleNamespace(run=None)
    for function in (actions.apply_signal, actions.apply_loader):
        with pytest.raises(ValueError, match=golden(1)):
            function(context, {"rank": 1, "name": "SIGKILL", "worker": 0})
    actions.undo_signal(context, {"rank": 1})
    assert actions.inspect_signal(context, {"rank": 1, "name": "SIGKILL"}) == {"in_force": True, "state": "ended"}
    assert not actions.inspect_signal(context, {"rank": 1, "name": "SIGSTOP"})["in_force"]


def test_whoever_does_not_run_it_asks_the_nodes_that_run_for_the_rank() -> None:
    target: Any = RanksOfARun()
    target.ranks = {}
    stop = Signal(rank=7, name="SIGSTOP")
    stop.apply(target)
    assert stop.read_back(target)["in_force"]
    assert ("node1", "apply_signal", {"rank": 7, "name": "SIGSTOP"}) in target.asked
    assert {node for node, *_ in target.asked} == {"node1"}
