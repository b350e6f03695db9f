"""When a fault was noticed, from the facts of a record."""

from __future__ import annotations

from lab.features.faults.detection import Detection, check_detected, find_detections, report_faults
from lab.node.messages.agent import Connections, Exited, Halted, Started
from lab.record.events import Clock, Event, Fault, FaultHealed, NodeLost, NodeTroubled, TimedOut
from tests.golden import golden

_AT = 1000.0


def _found(*facts: Event, at: float = _AT) -> Detection:
    [found] = find_detections([Fault(at, "kill node2", node="node2"), *facts])
    return found


def test_a_node_that_goes_away_is_noticed_by_the_engine() -> None:
    found = _found(NodeLost(_AT + 0.25, "node2", "was killed (SIGKILL)"), Exited(0, _AT + 0.3, "node0", code=1))
    assert found.to_result() == {"detected_s": 0.25, "by": "the engine"}
    assert found.sentence() == golden(1)


def test_what_a_rank_raises_counts_from_when_it_raised() -> None:
    ended = Exited(0, _AT + 0.9, "node0", code=1, error="RuntimeError: Connection closed by peer", raised=_AT + 0.5)
    assert _found(ended).sentence() == golden(1)


def test_the_earliest_fact_counts_whoever_told_it_first() -> None:
    stopped = Halted(2, _AT + 0.1, "node2", signal="SIGSTOP")
    silent = Connections(_AT + 0.75, "node0", "r", "node2", 1, silent_s=0.5)
    assert _found(silent, stopped).to_result() == {"detected_s": 0.1, "by": golden(1)}
    assert _found(silent).to_result() == {"detected_s": 0.75, "by": golden(2)}


def test_what_shows_no_failure_is_no_notice() -> None:
    well = [
        Exited(1, _AT + 0.5, "node1", code=0),
        Exited(2, _AT + 0.6, "node2", signal="SIGTERM", stopped=True),
        NodeTroubled(_AT + 0.7, "node1", ""),
        Connections(_AT + 0.8, "node0", "r", "node2", 1),
        Halted(2, _AT + 0.9, "node2", signal=""),
    ]
    assert _found(*well).to_result() == {"detected_s": None, "by": ""}


def test_what_was_wrong_before_does_not_tell_of_a_fault() -> None:
    before = Exited(1, _AT - 1, "node1", code=3)
    assert _found(before, TimedOut(_AT + 4)).to_result() == {"detected_s": 4.0, "by": "the time limit"}


def test_what_is_noticed_while_a_fault_is_being_done_is_noticed_at_once() -> None:
    fault = Fault(_AT, "kill node2", begun=_AT - 0.3)
    [found] = find_detections([NodeLost(_AT - 0.1, "node2"), fault, TimedOut(_AT + 9)])
    assert found.to_result() == {"detected_s": 0.0, "by": "the engine"}


def test_clocks_of_nodes_are_brought_to_that_of_the_lab() -> None:
    ended = Exited(1, _AT + 60.5, "node1", code=1)
    assert _found(Clock(_AT - 5, "node1", 60.0), ended).to_result() == {"detected_s": 0.5, "by": golden(1)}


def test_everybody_who_notices_is_told_once_and_when_it_was_healed() -> None:
    facts = [
        Fault(_AT, "kill node2", number=0),
        Connections(_AT + 0.6, "node1", "r", "node2", 1, silent_s=0.5),
        Connections(_AT + 1.6, "node1", "r", "node2", 1, silent_s=1.5),
        Exited(0, _AT + 2, "node0", code=1, error="RuntimeError: Timed out", raised=_AT + 2),
        FaultHealed(_AT + 3, "kill node2", number=0),
    ]
    [found] = find_detections(facts)
    assert [(fact.by, round(fact.time - _AT, 3)) for fact in found.notices] == [(golden(1), 0.6), ("rank 0", 2)]
    assert found.healed == _AT + 3
    [told] = report_faults([Started(0, _AT - 1, "node0"), *facts])
    assert told["sentence"] == (golden(2))


def test_each_fault_is_told_with_when_it_was_noticed() -> None:
    facts = [Fault(_AT, "kill node2", number=0), NodeLost(_AT + 1, "node2"), Fault(_AT + 2, "kill node2", number=2)]
    assert [(one.number, one.after_s) for one in find_detections(facts)] == [(0, 1.0), (2, None)]


def test_a_fault_has_to_be_noticed_in_time() -> None:
    found = find_detections([Fault(_AT, "kill node2"), NodeLost(_AT + 3, "node2")])
    assert check_detected(3.5, found).met
    late = check_detected(1.0, found)
    assert (late.met, late.expected) == (False, "1 s")
    assert late.got == golden(1)


def test_where_nothing_was_broken_nothing_can_be_noticed() -> None:
    assert check_detected(5.0, []).sentence() == golden(1)
