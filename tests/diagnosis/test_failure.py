"""Who failed first, and in which calls that found the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.diagnosis.causes import find_causes
from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.explain import Explanation
from lab.diagnosis.finding import Finding
from lab.diagnosis.judge import judge_evidence
from tests.diagnosis.facts import exited, raised, stack, stopped, told_facts, write_events
from tests.golden import golden
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit
PEER = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:7"


@pytest.fixture
def made(tmp_path: Path) -> TraceMaker:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in range(3):
        made.call(rank, "all_reduce", 1, 2, [[1.0]], [[3.0]], at="train.py:9")
    return made


def lose(made: TraceMaker, rank: int, op: str = "all_reduce", at: str = "train.py:41") -> None:
    """A call that failed."""
    index = made.call(rank, op, 1000, None, [[1.0]], at=at)
    made.line(rank, "end", 5000, i=index, err="Connection closed by peer")


def causes(made: TraceMaker, culprit: int | None = None) -> list[Finding]:
    return find_causes(read_evidence(made.record()), culprit)


def test_a_call_that_torch_refused_before_it_began_is_named(tmp_path: Path) -> None:
    fresh = TraceMaker(tmp_path / "fresh", 3)
    lose(fresh, 0, "gather")
    error = "ValueError: Argument ``gather_list`` must NOT be specified on non-destination ranks."
    told, frame = raised(1, error, 30), '  File "/x/torch/distributed/distributed_c10d.py", line 9, in gather\n'
    write_events(fresh, {**told, "traceback": told["traceback"].replace(error, f"{frame}{error}")}, raised(0, PEER, 41))
    [finding] = causes(fresh, 1)
    assert finding.words[0].endswith("non-destination ranks at train.py:30, in gather")


def test_who_raised_first_and_where_the_others_were(made: TraceMaker) -> None:
    lose(made, 0)
    lose(made, 2)
    write_events(made, raised(0, PEER, 41, 5.1), raised(1, "ValueError: no labels", 30), raised(2, PEER, 41, 5.2))
    [found] = causes(made, 1)
    assert told_facts(found) == {
        "what": "failed",
        "node": "node1",
        "end": {
            "how": "raised",
            "error": "ValueError: no labels",
            "place": {"file": "train.py", "line": 30, "call": ""},
        },
        "progress": {"calls": 1, "name": "all_reduce #1", "source": "train.py:9"},
        "hits": [
            {
                "name": "all_reduce #2",
                "calls": [
                    {
                        "rank": 0,
                        "name": "all_reduce",
                        "source": "train.py:41",
                        "error": golden(1),
                        "lost": True,
                    },
                    {
                        "rank": 2,
                        "name": "all_reduce",
                        "source": "train.py:41",
                        "error": golden(1),
                        "lost": True,
                    },
                ],
            }
        ],
    }
    assert (found.kind, found.ranks, found.others) == ("failed", (1,), (0, 2))
    assert found.lines == ("train.py:30", "train.py:41")


def test_without_a_verdict_the_earliest_that_raised_is_taken(made: TraceMaker) -> None:
    write_events(made, raised(0, "KeyError: 'b'", 41, 5.1), raised(2, "ValueError: a", 30, 4.0))
    assert causes(made)[0].ranks == (2,)


def test_a_rank_killed_in_a_call_is_told_with_that_call(made: TraceMaker) -> None:
    made.call(1, "broadcast", 1000, None, [[1.0]], at="train.py:33")
    write_events(made, exited(1, None, 5.0, signal="SIGSEGV"), stopped(0), stopped(2))
    [found] = causes(made, 1)
    assert told_facts(found) == {
        "what": "failed",
        "node": "node1",
        "end": {"how": "signal", "signal": "SIGSEGV"},
        "progress": {"calls": 2, "name": "broadcast #2", "source": "train.py:33", "unfinished": True},
    }


def test_who_left_with_code_0_while_others_needed_it(made: TraceMaker) -> None:
    lose(made, 0)
    lose(made, 2)
    write_events(made, raised(0, PEER, 41), exited(1, 0, 4.0), raised(2, PEER, 41))
    [found] = causes(made, 1)
    assert (found.kind, found.ranks, found.others) == ("left_early", (1,), (0, 2))
    assert told_facts(found) == {
        "what": "left",
        "node": "node1",
        "code": 0,
        "progress": {"calls": 1, "name": "all_reduce #1", "source": "train.py:9"},
        "hits": [
            {
                "name": "all_reduce #2",
                "calls": [
                    {
                        "rank": 0,
                        "name": "all_reduce",
                        "source": "train.py:41",
                        "error": golden(1),
                        "lost": True,
                    },
                    {
                        "rank": 2,
                        "name": "all_reduce",
                        "source": "train.py:41",
                        "error": golden(1),
                        "lost": True,
                    },
                ],
            }
        ],
    }


def test_who_called_once_more_after_most_had_ended(made: TraceMaker) -> None:
    lose(made, 2)
    write_events(made, exited(0, 0, 4.0), exited(1, 0, 4.0), raised(2, PEER, 41))
    [found] = causes(made, 2)
    assert told_facts(found) == {
        "node": "node2",
        "call": {
            "rank": 2,
            "name": "all_reduce",
            "source": "train.py:41",
            "error": golden(1),
            "lost": True,
        },
        "progress": {"calls": 1, "name": "all_reduce #1", "source": "train.py:9"},
    }


def test_a_node_that_went_away(made: TraceMaker) -> None:
    lose(made, 0)
    lost = {"event": "node lost", "node": "node1", "how": "was killed", "time": 1_700_000_004.0}
    write_events(made, lost, raised(0, PEER, 41), stopped(2))
    found = causes(made, 1)[0]
    assert told_facts(found) == {
        "what": "nodes_lost",
        "node": "node1",
        "nodes": ["node1"],
        "how": "was killed",
        "progress": {"calls": 1, "name": "all_reduce #1", "source": "train.py:9"},
        "hits": [
            {
                "name": "all_reduce #2",
                "calls": [
                    {
                        "rank": 0,
                        "name": "all_reduce",
                        "source": "train.py:41",
                        "error": golden(1),
                        "lost": True,
                    }
                ],
            }
        ],
    }
    assert (found.ranks, found.others) == ((1,), (0,))


def test_nodes_that_went_away_together_are_told_together(made: TraceMaker) -> None:
    lose(made, 0)
    lost = {"event": "node lost", "how": "was ended by Slurm: CANCELLED", "time": 1_700_000_004.0}
    write_events(made, *({**lost, "node": f"node{rank}"} for rank in (1, 2)), raised(0, PEER, 41))
    found = causes(made, 1)[0]
    assert told_facts(found) == {
        "what": "nodes_lost",
        "node": "node1",
        "nodes": ["node1", "node2"],
        "how": golden(1),
        "progress": {"calls": 1, "name": "all_reduce #1", "source": "train.py:9"},
        "hits": [
            {
                "name": "all_reduce #2",
                "calls": [
                    {
                        "rank": 0,
                        "name": "all_reduce",
                        "source": "train.py:41",
                        "error": golden(2),
                        "lost": True,
                    }
                ],
            }
        ],
    }
    assert (found.ranks, found.others) == ((1, 2), (0,))


@pytest.mark.features
def test_tensors_that_did_not_fit_come_before_the_error_they_caused(made: TraceMaker) -> None:
    for rank in range(3):
        made.call(rank, "all_reduce", 10, None, [[1.0] * (5 if rank == 0 else 4)], at="train.py:12")
    write_events(made, stopped(0), raised(1, "RuntimeError: op.preamble.length <= op.nbytes", 12), stopped(2))
    first, second = causes(made, 1)
    assert (first.kind, first.ranks, second.kind) == ("shape", (0,), "failed")


def test_a_long_error_is_shortened_and_loses_the_addresses_of_pytorchs_sources(made: TraceMaker) -> None:
    write_events(made, raised(1, f"RuntimeError: [/a/b/pair.cc:553] {'x' * 500}", 41), stopped(0), stopped(2))
    [found] = causes(made, 1)
    assert "pair.cc" not in found.sentence
    assert len(found.sentence) < 300


def give_up(made: TraceMaker, rank: int, op: str, line: int, **fields: object) -> None:
    """A call that timed out after 4 s."""
    index = made.call(rank, op, 1000, None, [[1.0]], at=f"train.py:{line}", **fields)
    made.line(rank, "end", 5000, i=index, err="Timed out waiting 4000ms for send operation to complete")


def test_a_ring_that_ends_because_its_ranks_give_up_is_nobodys_fault(made: TraceMaker) -> None:
    for rank in range(3):
        give_up(made, rank, "send", 41, peer=(rank + 1) % 3, tag=0)
    write_events(made, *(raised(rank, PEER, 41, 5 + rank / 10) for rank in range(3)))
    evidence = read_evidence(made.record())
    [found] = find_causes(evidence)
    assert (found.kind, found.ranks, found.others, found.seconds) == ("deadlock", (), (0, 1, 2), 4.0)
    verdict = judge_evidence(evidence)
    assert (verdict.verdict, verdict.culprit) == ("failed", None)
    assert verdict.reason.startswith(golden(1))


@pytest.mark.features
def test_a_message_that_nobody_sent_is_told_where_everybody_gave_up(made: TraceMaker) -> None:
    give_up(made, 2, "recv", 12, peer=0, tag=0)
    for rank in (0, 1):
        give_up(made, rank, "barrier", 14)
    write_events(made, *(raised(rank, PEER, 14, 5 + rank / 10) for rank in range(3)))
    evidence = read_evidence(made.record())
    [found] = find_causes(evidence)
    assert (found.kind, found.ranks, found.lines) == ("unmatched", (), ("train.py:12", "train.py:14"))
    assert judge_evidence(evidence).culprit is None


# -- late is not gone

TIMED_OUT = "RuntimeError: [/x/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 4000ms for recv operation"


@pytest.mark.features
def test_who_takes_a_message_that_does_not_fit_is_not_blamed_for_being_killed_by_it(made: TraceMaker) -> None:
    made.call(0, "send", 3, 4, [[1.0]], peer=1, tag=0, dtype="bfloat16", at="train.py:20")
    made.call(1, "recv", 3, None, (), [[1.0]], peer=0, tag=0, at="train.py:22")
    write_events(made, exited(1, None, 5.0, signal="SIGABRT"), stopped(0), stopped(2))
    judgement = judge_evidence(read_evidence(made.record(stop=False)))
    assert judgement.culprit is None
    assert judgement.reason.startswith(golden(1))
    assert golden(2) in judgement.reason


def test_who_is_killed_by_a_message_to_a_rank_that_there_is_not_is_told_so(made: TraceMaker) -> None:
    made.call(2, "send", 3, None, [[1.0]], peer=3, tag=0, at="train.py:20")
    write_events(made, exited(2, None, 5.0, signal="SIGSEGV"), stopped(0), stopped(1))
    judgement = judge_evidence(read_evidence(made.record(stop=False)))
    assert judgement.culprit is not None
    assert judgement.culprit.rank == 2
    assert judgement.reason.endswith(golden(1))


@pytest.mark.features
@pytest.mark.parametrize("alike", [True, False])
def test_who_has_other_weights_is_the_culprit_where_several_raised_at_one_line(made: TraceMaker, alike: bool) -> None:
    for rank, norm in enumerate((1.0, 1.0, 2.0)):
        made.call(rank, "all_reduce", 10, 11, [[0.1, 0.2]], [[1.0, 2.0]], red="SUM", at="train.py:18")
        made.line(rank, "weights", 15, o=1, steps=1, at="train.py:19", sizes=[2], grads=[5**0.5], norms=[norm])
    second = raised(2, "RuntimeError: apart", 30, 5.1) if alike else raised(2, "ValueError: no labels", 31, 5.1)
    write_events(made, raised(0, "RuntimeError: apart", 30), second, stopped(1))
    culprit = judge_evidence(read_evidence(made.record())).culprit
    assert culprit is not None
    assert (culprit.rank, culprit.cause) == ((2, "diverged") if alike else (0, "exception"))


# -- late is not gone

TIMED_OUT = "RuntimeError: [/x/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 4000ms for recv operation"


def time_out(made: TraceMaker, rank: int, at_ms: float = 5000) -> None:
    index = made.call(rank, "all_reduce", 1000, None, [[1.0]], at="train.py:41")
    made.line(rank, "end", at_ms, i=index, err=TIMED_OUT.partition(": ")[2])


def test_a_rank_that_had_not_come_when_another_gave_up_was_late_and_has_not_left(made: TraceMaker) -> None:
    time_out(made, 0)
    lose(made, 2)
    write_events(made, stack(1, 37), raised(0, TIMED_OUT, 41), raised(2, PEER, 41, 5.2), stopped(1))
    evidence = read_evidence(made.record())
    verdict = judge_evidence(evidence)
    assert verdict.culprit is not None
    assert verdict.culprit.rank == 1
    assert golden(1) in verdict.reason
    assert "left" not in verdict.reason
    [found] = find_causes(evidence, 1)
    assert (found.kind, found.ranks, found.others) == ("late", (1,), (0, 2))


def test_a_rank_that_came_after_another_had_given_up_is_blamed_for_that(made: TraceMaker) -> None:
    time_out(made, 0)
    time_out(made, 2, 5100)
    index = made.call(1, "all_reduce", 6000, None, [[1.0]], at="train.py:41")
    made.line(1, "end", 6001, i=index, err="Connection reset by peer")
    ended = raised(0, TIMED_OUT, 41), raised(1, PEER, 41, 6.1), raised(2, TIMED_OUT, 41, 5.1)
    write_events(made, stack(1, 37, at=5.5), *ended)
    verdict = judge_evidence(read_evidence(made.record()))
    assert verdict.culprit is not None
    assert verdict.culprit.rank == 1
    assert golden(1) in verdict.reason


def test_a_call_that_was_refused_was_not_waited_in(made: TraceMaker) -> None:
    for rank in (0, 2):
        index = made.call(rank, "reduce", 1000, None, [[1.0]], at="train.py:41")
        made.line(rank, "end", 1000.1, i=index, err="Cannot use ReduceOp.AVG with Gloo")
    write_events(made, raised(0, "RuntimeError: x", 41, 2.0), raised(1, "ValueError: y", 30, 1.0), stopped(2))
    [found] = causes(made, 1)
    assert told_facts(found) == {
        "what": "failed",
        "node": "node1",
        "end": {"how": "raised", "error": "ValueError: y", "place": {"file": "train.py", "line": 30, "call": ""}},
        "progress": {"calls": 1, "name": "all_reduce #1", "source": "train.py:9"},
        "hits": [
            {
                "name": "reduce #2",
                "calls": [
                    {
                        "rank": 0,
                        "name": "reduce",
                        "source": "train.py:41",
                        "error": golden(1),
                    },
                    {
                        "rank": 2,
                        "name": "reduce",
                        "source": "train.py:41",
                        "error": golden(1),
                    },
                ],
            }
        ],
    }


# -- for lack of memory


def test_who_ran_out_of_memory_is_told_with_its_size_and_line(made: TraceMaker) -> None:
    (made.path / "train.py").write_text("\n" * 11 + "kept.append(block)\n")
    dump = {"out_of_memory": True, "memory_bytes": 812_000_000, "stack": stack(1, 12)["text"]}
    write_events(made, exited(1, None, 5.0, signal="SIGKILL", **dump), stopped(0), stopped(2))
    verdict = judge_evidence(read_evidence(made.record()))
    assert golden(1) in verdict.reason


def test_who_left_no_stack_was_last_seen_in_its_latest_call_or_mark(made: TraceMaker) -> None:
    made.mark(1, "backward", 100, 200, at="train.py:33")
    write_events(made, exited(1, None, 5.0, signal="SIGKILL", out_of_memory=True), stopped(0), stopped(2))
    reason = judge_evidence(read_evidence(made.record())).reason
    assert golden(1) in reason


@pytest.mark.parametrize(("more", "blamed"), [((), 1), ((0,), 0)])
def test_of_a_message_that_nobody_took_who_called_less_or_more_than_most_is_named(
    made: TraceMaker, more: tuple[int, ...], blamed: int
) -> None:
    """Rank 1 leaves out to receive what rank 0 sends it, or rank 0 sends once more than everybody else."""
    pairs = [(one, other) for one in range(3) for other in range(3) if one != other and (one, other) != (0, 1)]
    for sender, receiver in [*pairs, *([(0, 1)] if more else [])]:
        made.call(sender, "send", 100, 200, [[1.0]], peer=receiver, tag=0, at="train.py:20")
        made.call(receiver, "recv", 100, 200, [[1.0]], peer=sender, tag=0, at="train.py:22")
    lost = made.call(0, "send", 1000, None, [[1.0]], peer=1, tag=0, at="train.py:20")
    made.line(0, "end", 5000, i=lost, err="Connection closed by peer")
    write_events(made, raised(0, PEER, 24, 5.1), exited(1, at=4.9), exited(2, at=4.9))
    evidence = read_evidence(made.record(stop=False))
    culprit = judge_evidence(evidence).culprit
    assert culprit is not None
    assert culprit.rank == blamed
    assert [found.ranks for found in find_causes(evidence, blamed)] == [(blamed,)]


@pytest.mark.features
def test_what_ranks_brought_differently_before_one_failed_by_itself_stands_behind_how_it_failed(
    made: TraceMaker,
) -> None:
    for rank in range(3):
        dtype = "int64" if rank == 0 else "float64"
        made.call(rank, "broadcast", 100, 200, [[1.0]], [[1.0]], dtype=dtype, root=0, at="train.py:20")
    write_events(made, raised(1, "AssertionError: 0 is not 45", 30), exited(0), exited(2))
    reason = judge_evidence(read_evidence(made.record(stop=False))).reason
    assert reason.startswith(golden(1))
    assert "rank 0 passed int64" in reason


def test_ranks_that_raised_the_same_at_the_same_line_are_named_with_the_first(made: TraceMaker) -> None:
    write_events(
        made, raised(0, "ValueError: no", 30, 5.1), raised(1, "ValueError: no", 30), raised(2, "ValueError: two", 30)
    )
    evidence = read_evidence(made.record())
    judgement, [cause] = judge_evidence(evidence), find_causes(evidence, 1)
    assert judgement.reason == golden(1)
    assert [one.to_json()["facts"]["alike"] for one in (*judgement.findings, cause)] == [[0], [0]]
    assert judgement.culprit is not None
    assert judgement.culprit.rank == 1


def test_an_explanation_does_not_repeat_a_headline_that_the_reason_has(made: TraceMaker) -> None:
    write_events(made, raised(0, "ValueError: no", 30, 5.1), raised(1, "ValueError: no", 30))
    cause = find_causes(read_evidence(made.record()), 1)[0]
    explanation = Explanation(run="r", scenario="s", verdict="failed", sentence="it rained", findings=(cause,))
    assert explanation.new_sentences == [cause.sentence]
    assert replace(explanation, sentence=f"besides, {cause.headline}twice").new_sentences == [cause.sentence]
    assert replace(explanation, sentence=f"{cause.headline}; besides, it rained").new_sentences == []


@pytest.mark.parametrize("again", [True, False])
def test_of_two_ranks_of_which_one_makes_a_call_more_none_is_accused(tmp_path: Path, again: bool) -> None:
    """It is unknown whether the other rank should have made the call, too."""
    made = TraceMaker(tmp_path / "two", 2)
    for rank in (0, 1):
        made.call(rank, "barrier", 1, 2, at="train.py:9")
    lost = made.call(0, "barrier", 3, None, at="train.py:9" if again else "train.py:12")
    made.line(0, "end", 5000, i=lost, err="Connection closed by peer")
    write_events(made, raised(0, PEER, 9, 5.1), exited(1, at=4.9))
    judgement = judge_evidence(read_evidence(made.record(stop=False)))
    assert (judgement.verdict, judgement.culprit) == ("failed", None)
    [found] = find_causes(read_evidence(made.record(stop=False)))
    assert (found.kind, found.ranks, found.others) == ("left_early", (), (0, 1))
    assert judgement.findings == (found,)
    assert judgement.reason.startswith(golden(1)) == again


def two_in_a_loop(made: TraceMaker, last: str) -> None:
    """Two ranks go through a loop of two calls; rank 1 ends after the call `last` of the third round."""
    calls = [("all_reduce", 9), ("broadcast", 10)] * 3
    until = len(calls) - (last == "all_reduce")
    for n, (op, line) in enumerate([*calls, *calls[:1]]):
        for rank in (0, 1):
            if n < until or (rank == 0 and n == until):
                call = made.call(rank, op, n, n + 1 if n < until else None, root=0, at=f"train.py:{line}")
    made.line(0, "end", 5000, i=call, err="Connection closed by peer")


@pytest.mark.features
@pytest.mark.parametrize(("last", "culprit"), [("all_reduce", 1), ("broadcast", None)])
def test_of_two_ranks_the_one_that_ends_in_the_middle_of_its_loop_left_early(
    tmp_path: Path, last: str, culprit: int | None
) -> None:
    """At the end of a round, the other one may have gone on too long."""
    two_in_a_loop(made := TraceMaker(tmp_path / "two", 2), last)
    write_events(made, raised(0, PEER, 9, 5.1), exited(1, at=4.9))
    judgement = judge_evidence(read_evidence(made.record(stop=False)))
    assert (judgement.culprit and judgement.culprit.rank) == culprit
    assert judgement.findings[0].kind == "left_early"


@pytest.mark.features
@pytest.mark.parametrize(("line", "culprit"), [(12, 1), (24, 1), (30, None)])
def test_of_two_ranks_the_one_that_exits_where_the_other_is_not_or_at_its_call_left_early(
    tmp_path: Path, line: int, culprit: int | None
) -> None:
    """A script that ends with sys.exit(main()) in line 30 exits at a line that each rank is in."""
    made = TraceMaker(tmp_path / "two", 2)
    lost = made.call(0, "barrier", 3, None, at="train.py:24")
    made.line(0, "end", 5000, i=lost, err="Connection closed by peer")
    made.line(1, "exit", 4000, at=f"train.py:{line}")
    failed = raised(0, PEER, 24, 5.1)
    main = failed["traceback"].splitlines(keepends=True)
    main.insert(1, main[1].replace("line 24, in main", "line 30, in <module>"))
    write_events(made, failed | {"traceback": "".join(main)}, exited(1, at=4.9))
    judgement = judge_evidence(read_evidence(made.record()))
    assert (judgement.culprit and judgement.culprit.rank) == culprit


def test_a_rank_outside_of_the_group_that_had_ended_is_not_accused(made: TraceMaker) -> None:
    made.group("5", [1, 2], 0.5)
    for rank in (1, 2):
        index = made.call(rank, "all_reduce", 1000, None, [[1.0]], group="5", at="train.py:24")
        made.line(rank, "end", 5000, i=index, err="Connection closed by peer")
    write_events(made, exited(0, at=4.8), raised(1, PEER, 24, 5.2), raised(2, PEER, 24, 5.1))
    culprit = judge_evidence(read_evidence(made.record(stop=False))).culprit
    assert culprit is None or culprit.rank != 0


def test_a_rank_is_not_accused_because_a_rank_outside_of_its_group_had_ended(made: TraceMaker) -> None:
    made.group("5", [1, 2], 0.5)
    index = made.call(2, "all_reduce", 1000, None, [[1.0]], group="5", at="train.py:24")
    made.line(2, "end", 5000, i=index, err="Connection closed by peer")
    write_events(made, exited(0, at=4.8), exited(1, at=4.9), raised(2, PEER, 24, 5.1))
    assert judge_evidence(read_evidence(made.record(stop=False))).culprit is None


@pytest.mark.parametrize("sent", [1, 2])
def test_of_two_that_exchange_messages_the_one_that_sent_less_left_early(tmp_path: Path, sent: int) -> None:
    """If each sent as much as it received, a rank that receives once more may be right."""
    made = TraceMaker(tmp_path / "three", 3)
    for turn in range(2):
        for rank, peer in ((0, 1), (1, 0), (1, 2), (2, 1)):
            late = (rank, peer, turn) == (0, 1, 1)
            if not (late and sent == 1):
                made.call(rank, "send", 10 * turn, 10 * turn + 1, [[1.0]], peer=peer, tag=0, at="train.py:9")
            unmet = (rank, peer, turn) == (1, 0, 1) and sent == 1
            end = None if unmet else 10 * turn + 3
            call = made.call(rank, "recv", 10 * turn + 2, end, (), [[1.0]], peer=peer, tag=0, at="train.py:10")
            if unmet:
                made.line(1, "end", 5000, i=call, err="Connection closed by peer")
    if sent == 2:
        call = made.call(1, "recv", 40, None, (), [[1.0]], peer=0, tag=0, at="train.py:20")
        made.line(1, "end", 5000, i=call, err="Connection closed by peer")
    write_events(made, raised(1, PEER, 10, 5.1), exited(0, at=4.9), exited(2, at=4.9))
    culprit = judge_evidence(read_evidence(made.record(stop=False))).culprit
    assert (culprit and culprit.rank) == (0 if sent == 1 else None)


def test_who_is_killed_by_data_of_an_earlier_call_that_did_not_fit_is_not_blamed(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "three", 3)
    for rank in range(3):
        made.call(rank, "broadcast", 1, 2, [[1.0] * (1 if rank == 0 else 2)], at="train.py:9", root=0)
        made.call(rank, "broadcast", 3, None, [[1.0]], at="train.py:9", root=0)
    write_events(made, exited(2, None, 5.0, signal="SIGABRT"), stopped(0), stopped(1))
    judgement = judge_evidence(read_evidence(made.record(stop=False)))
    assert judgement.culprit is not None
    assert (judgement.culprit.rank, judgement.findings[0].kind) == (0, "shape")


def test_a_rank_that_never_entered_has_left_however_long_its_process_took_to_end(made: TraceMaker) -> None:
    lose(made, 0)
    lose(made, 2)
    chained = raised(0, "TrainingError: evaluation failed", 41)
    chained["traceback"] = chained["traceback"].replace("Traceback", f"{PEER}\n\nTraceback")
    write_events(made, chained, raised(2, PEER, 41, 5.2), exited(1, at=9.0))
    judgement = judge_evidence(read_evidence(made.record()))
    [finding] = judgement.findings
    assert (finding.kind, finding.ranks) == ("left_early", (1,))
    assert told_facts(finding)["missed"]["after"] == {"calls": 1, "name": "all_reduce #1", "source": "train.py:9"}
