"""Whose fault it was: a table of runs that went wrong, as their agents would tell them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import RankFacts, RunFacts
from lab.diagnosis.judge import judge_evidence
from lab.record.events import NodeLost, NodeTroubled
from lab.record.read import Record
from lab.words import name_ranks
from tests.golden import golden

PEER = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
    "[192.168.0.2]:11154. This is typically caused by a remote worker crashing."
)
RESET = "RuntimeError: [pair.cc:537] Read error [192.168.0.2]:11154: Connection reset by peer."
STORE = "torch.distributed.DistNetworkError: failed to recv, got 0 bytes"
TRACE = """Traceback (most recent call last):
  File "/var/lab/run/work/train.py", line 7, in <module>
    step()
  File "/var/lab/run/work/train.py", line 3, in step
    {}
{}
"""


def rank(number: int, code: int | None = 0, at: float = 10.0, **more: Any) -> RankFacts:
    """A rank, one a node, that ended at a time; `code` None: it did not exit by itself."""
    facts = RankFacts(rank=number, node=f"node{number}", local_rank=0, started=0.0, ended=at, code=code)
    for name, value in more.items():
        setattr(facts, name, value)
    return facts


def raised(number: int, error: str, at: float = 10.0, line: str = "work()") -> RankFacts:
    return rank(number, 1, at + 0.1, error=error, raised=at, traceback=TRACE.format(line, error))


def lost(number: int) -> RankFacts:
    return rank(number, None, at=0.0, ended=None, node_lost=True)


def stopped(number: int, at: float = 11.0, **more: Any) -> RankFacts:
    return rank(number, None, at, signal="SIGKILL", stopped=True, **more)


def dies(node: int, at: float, how: str = "was killed (SIGKILL)") -> NodeLost:
    return NodeLost(node=f"node{node}", how=how, time=at)


def stack(line: int, call: str = "", name: str = "train.py") -> str:
    """What faulthandler writes of a rank at a line of its script, inside a collective or not."""
    inner = f'  File "/x/torch/distributed/distributed_c10d.py", line 50 in {call}\n' if call else ""
    return (
        "Thread 0x00007f (most recent call first):\n"
        + inner
        + f'  File "/var/lab/run/work/{name}", line {line} in main\n'
        '  File "/opt/lab/labnode/node/rank/worker.py", line 1 in run_worker\n'
    )


CASES: dict[str, tuple[RunFacts, int | None, str]] = {
    "one raises, its peers lose it": (
        RunFacts(ranks=[raised(0, PEER, 5.2), raised(1, "ValueError: mine", 5.0), raised(2, RESET, 5.1)]),
        1,
        r"rank 1 \(node1\) raised ValueError: mine at train\.py:3",
    ),
    "the peers report before the one who raised": (
        RunFacts(ranks=[raised(0, PEER, 4.0), raised(1, "ValueError: mine", 5.0), raised(2, RESET, 4.1)]),
        1,
        "ValueError: mine",
    ),
    "two raise by themselves: the earlier": (
        RunFacts(ranks=[raised(0, "KeyError: 'b'", 6.0), raised(1, "ValueError: a", 5.0)]),
        1,
        "ValueError: a",
    ),
    "one raised earlier but ended later": (
        RunFacts(ranks=[raised(0, "ValueError: first", 5.0), rank(1, 3, at=5.05)]),
        0,
        "ValueError: first",
    ),
    "one exits with a code, its peers lose it": (
        RunFacts(ranks=[raised(0, PEER), rank(1, 3, at=10.5), raised(2, STORE)]),
        1,
        "exited with code 3",
    ),
    "one is out of memory": (
        RunFacts(
            ranks=[raised(0, PEER, 5.0), rank(1, None, 5.5, signal="SIGKILL", out_of_memory=True)], memory_bytes=1 << 30
        ),
        1,
        r"out of memory \(limit 1 GiB\)",
    ),
    "one is killed by a signal": (
        RunFacts(ranks=[raised(0, RESET, 5.0), rank(1, None, 5.5, signal="SIGSEGV", stack="")]),
        1,
        "killed by SIGSEGV",
    ),
    "one has raised, and is killed when its script is over": (
        RunFacts(ranks=[rank(0, None, 5.5, signal="SIGKILL", error="ValueError: a", raised=5.0)]),
        0,
        "raised ValueError: a",
    ),
    "one has left with a code, and is killed when its script is over": (
        RunFacts(ranks=[rank(0, None, 5.5, signal="SIGKILL", error="SystemExit: 3", raised=5.0)]),
        0,
        "exited with code 3",
    ),
    "one is killed by a signal at a line": (
        RunFacts(ranks=[rank(0, None, 5.5, signal="SIGABRT", stack=stack(9))]),
        0,
        r"killed by SIGABRT at train\.py:9",
    ),
    "one leaves early with 0": (
        RunFacts(ranks=[raised(0, PEER, 5.0), rank(1, 0, 4.0), raised(2, PEER, 5.1)]),
        1,
        "exited early, with code 0",
    ),
    "one leaves early with 0 and is reaped after its peers complain": (
        RunFacts(ranks=[raised(0, PEER, 5.0), rank(1, 0, 5.2), raised(2, PEER, 5.1)]),
        1,
        "exited early, with code 0",
    ),
    "only victims are known: the first of them": (
        RunFacts(ranks=[raised(0, PEER, 5.1), raised(1, RESET, 5.0)]),
        1,
        "Connection reset by peer",
    ),
    "a node is lost and its peers complain": (
        RunFacts(ranks=[raised(0, PEER, 5.0), lost(1), raised(2, PEER, 5.1)], lost_nodes=[dies(1, 5.3)]),
        1,
        r"node1 was killed \(SIGKILL\) during the run; rank 1 ran there",
    ),
    "a node is lost while the others wait": (
        RunFacts(ranks=[stopped(0), lost(1)], lost_nodes=[dies(1, 5.0)]),
        1,
        "node1 was killed",
    ),
    "a node is cut off and its peers complain": (
        RunFacts(
            ranks=[raised(0, PEER, 5.0), stopped(1), raised(2, RESET, 5.1)],
            troubled={"node1": NodeTroubled(7.0, "node1", "was disconnected from its network", silent=False)},
        ),
        1,
        r"node1 was disconnected from its network; rank 1 ran there$",
    ),
    "one raised by itself while a node was paused": (
        RunFacts(
            ranks=[raised(0, "ValueError: mine", 5.0), stopped(1)],
            troubled={"node1": NodeTroubled(7.0, "node1", "was paused")},
        ),
        0,
        "ValueError: mine",
    ),
    "a node is out of memory": (
        RunFacts(ranks=[lost(0)], lost_nodes=[dies(0, 5.0, "was killed by the kernel: out of memory")]),
        0,
        "node0 was killed by the kernel: out of memory during the run",
    ),
    "two nodes are lost: the earlier": (
        RunFacts(ranks=[lost(0), lost(1)], lost_nodes=[dies(0, 7.0), dies(1, 5.0)]),
        1,
        "node1 was killed",
    ),
    "nodes are lost together: all of them, and the earliest is the culprit": (
        RunFacts(
            ranks=[lost(0), lost(1), lost(2)],
            lost_nodes=[dies(n, 5.0 + n % 2, f"was lost with its host host{n // 2}") for n in range(3)],
        ),
        0,
        "node0 and node1 were lost with their host host0 during the run; ranks 0 and 1 ran there",
    ),
    "one raised well before a node was lost": (
        RunFacts(ranks=[raised(0, "ValueError: mine", 3.0), lost(1)], lost_nodes=[dies(1, 5.0)]),
        0,
        "ValueError: mine",
    ),
    "one raised something else because a node was lost": (
        RunFacts(ranks=[raised(0, "ValueError: mine", 6.0), lost(1)], lost_nodes=[dies(1, 5.0)]),
        1,
        "node1 was killed",
    ),
    "a script's own broken pipe is its own fault": (
        RunFacts(ranks=[raised(0, "BrokenPipeError: [Errno 32] Broken pipe", 5.0), stopped(1)]),
        0,
        "BrokenPipeError",
    ),
    "one alone fails and the others are stopped": (
        RunFacts(ranks=[stopped(0), stopped(1), raised(2, "AssertionError: shapes", 5.0)]),
        2,
        "AssertionError: shapes",
    ),
    "one fails in the end when all others had ended": (
        RunFacts(ranks=[rank(0, 0, 5.0), rank(1, 1, 9.0)]),
        1,
        "exited with code 1",
    ),
    "an error of many lines is told by its first and last": (
        RunFacts(ranks=[raised(0, "ValueError: first\nsecond\nthird", 5.0)]),
        0,
        r"raised ValueError: first … third at train\.py:3$",
    ),
    "an error without a traceback": (RunFacts(ranks=[rank(0, 1, error="ValueError: x")]), 0, "raised ValueError: x$"),
    "an unknown signal number": (RunFacts(ranks=[rank(0, None, signal="SIGRTMIN+3")]), 0, r"killed by SIGRTMIN\+3"),
}


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(path=tmp_path)


@pytest.mark.parametrize("case", CASES)
def test_the_first_culprit_is_named(record: Record, case: str):

    facts, culprit, reason = CASES[case]
    judgement = judge_evidence(Evidence(facts=facts, record=record))
    assert judgement.verdict == "failed"
    assert judgement.culprit is not None
    assert judgement.culprit.rank == culprit
    assert judgement.culprit.node == f"node{culprit}"
    assert re.search(reason, judgement.reason), judgement.reason
    assert "\n" not in judgement.reason


def timed_out(*ranks: RankFacts, **more: Any) -> RunFacts:
    return RunFacts(ranks=list(ranks), timeout_s=30.0, timed_out=True, **more)


def leaving(thread: int | None = None) -> str:
    """What faulthandler writes of a rank whose script is over, and of a thread of it at a line."""
    other = f'Thread 0x00007e (most recent call first):\n  File "/var/lab/run/work/train.py", line {thread} in poll\n\n'
    return (other if thread else "") + (
        "Thread 0x00007f (most recent call first):\n"
        '  File "/usr/lib/python3.11/threading.py", line 1590 in _shutdown\n'
        '  File "/opt/lab/labnode/node/rank/worker.py", line 230 in _leave\n'
        '  File "/opt/lab/labnode/node/rank/worker.py", line 90 in run_worker\n'
    )


HANGS: dict[str, tuple[RunFacts, int | None, str]] = {
    "one sleeps, the others wait for it": (
        timed_out(
            stopped(0, stack=stack(9, "barrier")), stopped(1, stack=stack(5)), stopped(2, stack=stack(9, "barrier"))
        ),
        1,
        r"the run did not end within 30 s: rank 1 was at train\.py:5; ranks 0 and 2 waited in barrier at train\.py:9",
    ),
    "one left with 0, the others wait for it": (
        timed_out(stopped(0, stack=stack(9, "all_reduce")), rank(1, 0, 2.0), stopped(2, stack=stack(9, "all_reduce"))),
        1,
        r"ranks 0 and 2 waited in all_reduce at .*:9; rank 1 exited early, with code 0, while others waited for it$",
    ),
    "one of two left with 0": (
        timed_out(stopped(0, stack=stack(9, "all_reduce")), rank(1, 0, 2.0)),
        None,
        r"rank 0 waited in all_reduce at train\.py:9; rank 1 had ended$",
    ),
    "one is in another collective": (
        timed_out(
            stopped(0, stack=stack(9, "all_reduce")),
            stopped(1, stack=stack(9, "all_reduce")),
            stopped(2, stack=stack(20, "broadcast")),
        ),
        2,
        r"ranks 0 and 1 waited in all_reduce at train\.py:9; rank 2 waited in broadcast at train\.py:20",
    ),
    "one alone sleeps": (timed_out(stopped(0, stack=stack(5))), 0, r"rank 0 was at train\.py:5"),
    "one has no Python stack": (
        timed_out(stopped(0, stack=stack(9, "barrier")), stopped(1, stack="(no Python stack)")),
        1,
        "rank 1 was in code without a Python stack",
    ),
    "all are done, and one does not end": (
        timed_out(stopped(0, stack=leaving()), rank(1, 0, 2.0), rank(2, 0, 2.0)),
        0,
        r"the run did not end within 30 s: rank 0 was done, but did not end; ranks 1 and 2 had ended",
    ),
    "a thread keeps one from ending": (
        timed_out(stopped(0, stack=leaving(thread=7))),
        0,
        r"rank 0 was done, but did not end: a thread of it was at train\.py:7",
    ),
    "a node was paused while the others waited": (
        timed_out(
            stopped(0, stack=stack(9, "all_reduce")),
            rank(1, None, ended=None),
            stopped(2, stack=stack(9, "all_reduce")),
            troubled={"node1": NodeTroubled(7.0, "node1", "was paused")},
        ),
        1,
        r"the run did not end within 30 s: node1 was paused; rank 1 ran there; "
        r"ranks 0 and 2 waited in all_reduce at train\.py:9$",
    ),
    "a signal had stopped one while the others waited": (
        timed_out(stopped(0, stack=stack(9, "recv")), stopped(1, stack="(no Python stack)", halted="SIGSTOP")),
        1,
        r"rank 1 \(node1\) was stopped by SIGSTOP; rank 0 waited in recv at train\.py:9$",
    ),
    "one never told its stack": (
        timed_out(stopped(0, stack=stack(9, "barrier")), stopped(1, stack="")),
        1,
        "rank 1 was in code without a Python stack",
    ),
}


@pytest.mark.parametrize("case", HANGS)
def test_who_kept_the_others_waiting_is_named(record: Record, case: str):

    facts, culprit, reason = HANGS[case]
    judgement = judge_evidence(Evidence(facts=facts, record=record))
    assert judgement.verdict == "hung"
    assert (judgement.culprit.rank if judgement.culprit else None) == culprit
    assert re.search(reason, judgement.reason), judgement.reason


def test_all_waiting_at_the_same_place_is_nobodys_fault(record: Record):
    facts = timed_out(*(stopped(number, stack=stack(9, "recv")) for number in range(3)))
    judgement = judge_evidence(Evidence(facts=facts, record=record))
    assert (judgement.verdict, judgement.culprit) == ("hung", None)
    assert golden(1) in judgement.reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"engine_lost": "the engine is gone"}, "the engine is gone"),
        ({"refused": "node0 could not start"}, "node0 could not start"),
        ({"interrupted": True, "duration_s": 2.0}, "interrupted after 2 s"),
    ],
)
def test_what_is_nobodys_fault_is_an_error(record: Record, change: dict[str, Any], reason: str):
    facts = RunFacts(ranks=[rank(0, 1), stopped(1)], timed_out=True, **change)
    judgement = judge_evidence(Evidence(facts=facts, record=record))
    assert (judgement.verdict, judgement.reason, judgement.culprit) == ("error", reason, None)


@pytest.mark.parametrize(("count", "who"), [(1, "1 rank"), (2, "all 2 ranks")])
def test_all_well_is_passed(record: Record, count: int, who: str):
    facts = RunFacts(ranks=[rank(number) for number in range(count)], duration_s=0.5)
    assert judge_evidence(Evidence(facts=facts, record=record)).reason == golden(1, who)


def test_a_code_that_is_expected_is_no_failure():
    assert not rank(1, 3, expected_code=3).failed
    assert not rank(1, None, signal="SIGKILL", expected_code=-9).failed
    assert rank(1, 0, expected_code=3).failed
    assert rank(1, 3).failed
    assert not stopped(1).failed
    assert not rank(1, None, ended=None).failed


def test_a_culprit_brings_the_end_of_its_traceback_with_paths_of_its_own_folder(record: Record):
    judgement = judge_evidence(Evidence(facts=RunFacts(ranks=[raised(0, "ValueError: x", 5.0)]), record=record))
    assert judgement.culprit.traceback.splitlines()[-1] == "ValueError: x"
    assert golden(1) in judgement.culprit.traceback
    assert "/var/lab" not in judgement.culprit.traceback


def test_a_hung_culprit_brings_the_innermost_frames_of_its_stack(record: Record):
    judgement = judge_evidence(Evidence(facts=timed_out(stopped(0, stack=stack(5))), record=record))
    assert 'File "train.py", line 5' in judgement.culprit.traceback
    assert "labnode" not in judgement.culprit.traceback


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], "no rank"),
        ([3], "rank 3"),
        ([2, 0], "ranks 0 and 2"),
        ([0, 1], "ranks 0 and 1"),
        ([0, 1, 5], "ranks 0, 1, and 5"),
        ([4, 5, 6, 7], "ranks 4-7"),
    ],
)
def test_ranks_are_named_shortly(ranks: list[int], text: str):
    assert name_ranks(ranks) == text


def test_ranks_that_failed_at_once_for_different_reasons_are_all_told(record: Record):
    ranks = [raised(0, PEER, 6.0), raised(1, "ValueError: mine", 5.0), raised(2, "KeyError: 'x'", 5.05, "other()")]
    ranks[2].traceback = ranks[2].traceback.replace("line 3", "line 9")
    judgement = judge_evidence(Evidence(facts=RunFacts(ranks=ranks), record=record))
    assert judgement.culprit is not None
    assert judgement.culprit.rank == 1
    assert [finding.ranks for finding in judgement.findings] == [(1,), (2,)]
    assert golden(1) in judgement.reason


def test_a_rank_that_failed_when_the_first_was_gone_may_have_failed_for_that(record: Record):
    ranks = [raised(1, "ValueError: mine", 5.0), raised(2, "KeyError: 'x'", 5.5, "other()")]
    ranks[1].traceback = ranks[1].traceback.replace("line 3", "line 9")
    judgement = judge_evidence(Evidence(facts=RunFacts(ranks=ranks), record=record))
    assert [finding.ranks for finding in judgement.findings] == [(1,)]
