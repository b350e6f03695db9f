"""Attempts: what agents say of workers that met anew goes into a record of its own, each judged by itself."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lab.diagnosis.explain import explain_run
from lab.features.html.page import write_report
from lab.features.watch.now import Follower, Now
from lab.features.watch.verb import follow_run
from lab.node.messages.agent import STARTER, Exited, Note, Output, Started, Trace
from lab.record.events import NodeCame, NodeLost, TimedOut
from lab.record.layout import EVENTS, LOGS, PLAN, RESULT
from lab.record.read import Record, find_record, list_records
from lab.record.result import Result
from lab.report.style import Style
from lab.report.verdict import result_text
from tests.golden import golden
from tests.launched import SCENARIO, SCRIPT, Launched, restarted


@pytest.fixture
def run(tmp_path: Path) -> Launched:
    return Launched(tmp_path)


# -- one attempt


def test_a_run_whose_agents_speak_of_no_attempt_has_none(run: Launched) -> None:
    for rank in range(3):
        run.say(f"node{rank}", Started(rank, 1.0, f"node{rank}"))
        run.say(f"node{rank}", Exited(rank, 2.0, f"node{rank}", code=0))
    result = run.over()
    assert result.passed
    assert (result.attempts, result.restarts) == ((), 0)
    assert sorted(path.name for path in run.writer.path.iterdir()) == [
        *("README.txt", "events.jsonl", "logs", "plan.json", "result.json", "scenario.yaml", "train.py")
    ]


def test_a_launcher_that_began_the_workers_once_made_one_attempt_with_those_that_met(run: Launched) -> None:
    run.meet("node2", "node0")
    run.ends(0)
    run.ends(1)
    result = run.over()
    assert result.passed
    assert (result.attempts, result.restarts) == ((), 0)
    assert [rank.node for rank in result.ranks] == ["node2", "node0"]
    plan = Record(path=run.writer.path).plan()
    assert [(worker.rank, worker.node) for worker in plan.workers] == [(0, "node2"), (1, "node0")]
    assert (plan.nnodes, plan.nproc_per_node, plan.master_port) == (2, 1, 29000)
    assert plan.workers[1].env["WORLD_SIZE"] == "2"
    assert not any(name.startswith("TORCHELASTIC_") for name in plan.workers[1].env)


# -- several


def test_each_attempt_is_a_whole_record(run: Launched) -> None:
    result = restarted(run)
    assert run.begun == [1]
    record = Record(path=run.writer.path)
    first = record.earlier_attempts()[0]
    assert (record.number, first.number, first.run) == (1, 0, f"{record.run}/attempts/0")
    assert first.run_of_attempt == record
    assert (record.log(1), first.log(1)) == (b"second\n", b"first\n")
    assert [piece.data for piece in first.output()] == [b"first\n"]
    assert first.plan().workers == record.plan().workers or first.plan().master_port == 29000
    assert record.plan().master_port == 29001
    assert first.scenario_text() == record.scenario_text() != ""
    assert (first.path / "train.py").read_text() == SCRIPT
    assert [worker.node for worker in first.plan().workers] == ["node0", "node1", "node2"]
    mine = Result.load(first.path)
    assert (mine.verdict, mine.culprit and mine.culprit.rank) == ("failed", 1)
    assert [rank.stopped for rank in mine.ranks] == [True, False, True]
    assert mine.ranks[1].log == "first\n"
    assert result.attempts[0].result == mine
    for one in (record, first):
        assert {"clock", "started", "exited"} <= {json.loads(line)["event"] for line in _lines(one)}
        write_report(one)


def test_what_attempts_came_to_is_told_in_one_sentence_and_as_data(run: Launched) -> None:
    result = restarted(run)
    assert result.passed
    assert result.reason == (golden(1))
    assert result.culprit is None
    assert [(one.number, one.verdict, one.world_size) for one in result.attempts] == [
        (0, "failed", 3),
        (1, "passed", 3),
    ]
    assert result.attempts[0].nodes == ("node0", "node1", "node2")
    assert Result.load(run.writer.path) == result
    shown = result_text(result, Style(colour=False))
    assert "attempt  ranks  nodes" in shown
    assert golden(2) in shown


def test_a_record_that_was_moved_still_knows_where_its_attempts_are(run: Launched, tmp_path: Path) -> None:
    restarted(run)
    moved = run.writer.path.rename(tmp_path / "elsewhere")
    result = Result.load(moved)
    assert [one.path for one in result.attempts] == [moved / "attempts" / "0", moved]
    assert result.attempts[0].result.verdict == "failed"


def test_what_comes_late_goes_to_the_attempt_that_it_is_of(run: Launched) -> None:
    run.meet("node0", "node1")
    old = run.key
    run.prints(1, "half a ")
    run.ends(0, code=None, signal="SIGTERM", stopped=True)
    run.meet("node0", "node1")
    run.prints(1, "new\n")
    run.prints(1, "line\n", key=old)
    run.say("node1", Trace("r", 1, b'{"k":"stop","t":1}\n', old))
    run.say("node1", Note(1, 1.0, "node1", attempt=old, name="late", value=7))
    run.say("node1", Exited(1, run.clock + 1, "node1", code=3, error="ValueError: late", attempt=old))
    run.ends(0)
    run.ends(1)
    result = run.over()
    first = Record(path=run.writer.path).attempt(0)
    assert first.log(1) == b"half a line\n"
    assert Record(path=run.writer.path).log(1) == b"new\n"
    assert (first.path / "trace" / "rank1.jsonl").is_file()
    assert result.attempts[0].culprit is not None
    assert result.attempts[0].result.ranks[1].notes == {"late": 7}
    assert result.ranks[1].notes == {}


def test_a_rank_that_lost_its_peer_before_the_first_culprit_ended_is_not_blamed(run: Launched) -> None:
    run.meet("node0", "node1", "node2")
    run.raises(0, golden(1))
    run.raises(2)
    run.ends(1, code=None, signal="SIGTERM", stopped=True)
    run.meet("node0", "node1", "node2")
    for rank in range(3):
        run.ends(rank)
    assert [one.culprit and one.culprit.rank for one in run.over().attempts] == [2, None]


def test_restarts_that_are_used_up_are_told_and_the_same_end_once(run: Launched) -> None:
    for _ in range(3):
        run.meet("node0", "node1", "node2")
        run.fails(1)
    result = run.over()
    assert (result.verdict, result.culprit and result.culprit.rank) == ("failed", 1)
    assert result.reason == (golden(1))


def test_several_ends_are_each_told_with_their_attempts(run: Launched) -> None:
    for culprit in (1, 1, 2):
        run.meet("node0", "node1", "node2")
        run.fails(culprit)
    result = run.over()
    assert result.reason == (golden(1))


def test_a_world_that_shrinks_has_fewer_ranks_and_what_is_expected_is_of_those(tmp_path: Path) -> None:
    run = Launched(tmp_path, f"{SCENARIO}expect: {{notes: {{world: world_size}}, restarts: [node2]}}\n")
    run.meet("node0", "node1", "node2")
    run.collector.fact(NodeLost(run.clock, "node2", "was stopped"))
    for rank in (0, 1):
        run.ends(rank, code=None, signal="SIGTERM", stopped=True)
    run.meet("node0", "node1")
    for rank in (0, 1):
        run.say("node0", Note(rank, run.clock, f"node{rank}", attempt=run.key, name="world", value=2))
        run.ends(rank)
    result = run.over()
    assert result.reason == (golden(1))
    assert [one.met for one in result.expectations] == [True] * 5
    assert [one.world_size for one in result.attempts] == [3, 2]


def test_a_world_that_grows_was_nobodys_fault(tmp_path: Path) -> None:
    run = Launched(tmp_path, f"{SCENARIO}expect: {{restarts: [null]}}\n")
    run.meet("node0", "node1")
    for rank in (0, 1):
        run.ends(rank, code=None, signal="SIGTERM", stopped=True)
    run.meet("node0", "node1", "node2")
    for rank in range(3):
        run.ends(rank)
    result = run.over()
    assert result.passed
    assert result.reason == (golden(1))
    first = result.attempts[0]
    assert (first.verdict, first.culprit) == ("error", None)
    assert first.reason.startswith("interrupted after ")
    found = explain_run(Record(path=run.writer.path).attempt(0)).findings
    assert not [finding for finding in found if finding.ranks]


def test_a_run_that_is_hung_says_in_which_attempt(run: Launched) -> None:
    run.meet("node0", "node1")
    run.fails(0, world=2)
    run.meet("node0", "node1")
    run.collector.fact(TimedOut(run.clock, 60.0))
    for rank in (0, 1):
        run.ends(rank, code=None, signal="SIGKILL", stopped=True)
    result = run.over()
    assert result.verdict == "hung"
    assert result.reason.startswith(golden(1))
    assert result.reason.endswith(golden(2))


@pytest.mark.parametrize(
    ("expected", "met"),
    [("1", True), ("0", False), ("[1]", True), ("[node1]", True), ("[0]", False), ("[1, 1]", False), ("[null]", False)],
)
def test_how_often_and_after_whom_the_launcher_began_anew_can_be_expected(
    tmp_path: Path, expected: str, met: bool
) -> None:
    result = restarted(Launched(tmp_path, f"{SCENARIO}expect: {{restarts: {expected}}}\n"))
    found = next(one for one in result.expectations if one.what == "restarts")
    assert (found.met, result.passed) == (met, met)


def test_no_restart_can_be_expected_of_any_run(tmp_path: Path) -> None:
    run = Launched(tmp_path, f"{SCENARIO}expect: {{restarts: 0}}\n")
    for rank in range(3):
        run.say(f"node{rank}", Started(rank, 1.0, f"node{rank}"))
        run.say(f"node{rank}", Exited(rank, 2.0, f"node{rank}", code=0))
    assert run.over().passed


# -- launchers themselves


def test_a_launcher_that_fails_though_no_rank_did_is_told_with_its_last_line(run: Launched) -> None:
    for node in ("node0", "node1"):
        run.say(node, Started(STARTER, 1.0, node))
    run.say("node1", Output("r", STARTER, 2, 1.0, b"Traceback\nRendezvousTimeoutError: nobody came\n\n"))
    run.say("node1", Exited(STARTER, 3.0, "node1", code=1))
    run.say("node0", Exited(STARTER, 4.0, "node0", code=1))
    result = run.over()
    assert (result.verdict, result.culprit and result.culprit.node) == ("failed", "node1")
    assert result.reason == (golden(1))


def test_a_launcher_that_fails_after_a_rank_is_not_to_blame(run: Launched) -> None:
    run.say("node0", Started(STARTER, 1.0, "node0"))
    run.meet("node0", "node1", "node2")
    run.fails(1)
    run.say("node0", Exited(STARTER, run.clock, "node0", code=1))
    result = run.over()
    assert result.reason == golden(1)


def test_launchers_that_never_started_a_rank_are_what_the_run_waited_for(run: Launched) -> None:
    for node in ("node0", "node1"):
        run.say(node, Started(STARTER, 1.0, node))
    run.collector.fact(TimedOut(121.0, 60.0, 60.0))
    for node in ("node0", "node1"):
        run.say(node, Exited(STARTER, 62.0, node, signal="SIGKILL"))
    result = run.over()
    assert result.verdict == "hung"
    assert result.reason == (golden(1))


def test_what_a_launcher_prints_is_in_one_log_for_all_attempts(run: Launched) -> None:
    run.say("node0", Output("r", STARTER, 2, 1.0, b"one\n"))
    run.meet("node0", "node1")
    run.fails(0, world=2)
    run.meet("node0", "node1")
    run.say("node0", Output("r", STARTER, 2, 2.0, b"two\n"))
    run.ends(0)
    run.ends(1)
    run.over()
    assert (run.writer.path / LOGS / "launcher-node0.log").read_bytes() == b"one\ntwo\n"


# -- records that are not whole


def test_a_run_that_goes_on_is_seen_to_in_every_attempt(run: Launched) -> None:
    run.meet("node0", "node1")
    run.fails(0, world=2)
    run.meet("node0", "node1")
    record = Record(path=run.writer.path)
    assert record.in_progress
    assert record.attempt(0).in_progress
    assert record.attempt(0).result().reason == golden(1)
    run.writer.close()
    assert not record.in_progress
    assert not record.attempt(0).in_progress


def test_a_record_of_a_lab_that_was_killed_still_tells_its_attempts(run: Launched) -> None:
    run.meet("node0", "node1")
    run.prints(0, "said\n")
    run.fails(0, world=2)
    run.meet("node1", "node0")
    run.prints(0, "more\n")
    run.writer.close()
    record = find_record(run.writer.run, run.writer.path.parent)
    assert record.log(0) == b"more\n"
    assert record.attempt(0).log(0) == b"said\n"
    assert record.attempt(0).workers() == {0: "node0", 1: "node1"}
    told = [finding.sentence for finding in explain_run(record).findings if finding.kind == "attempt"]
    assert len(told) == 1
    assert told[0].startswith("Attempt 0, 2 ranks")
    assert golden(1) in told[0]


@pytest.mark.parametrize("damage", [EVENTS, PLAN, RESULT, f"{LOGS}/rank1.log", "train.py"])
def test_an_attempt_of_which_a_file_is_lost_still_opens(run: Launched, damage: str) -> None:
    restarted(run)
    record = Record(path=run.writer.path)
    (record.attempt(0).path / damage).unlink()
    explain_run(record)
    explain_run(record.attempt(0))
    write_report(record)
    write_report(record.attempt(0))


def test_attempts_are_found_by_number_and_by_name(run: Launched) -> None:
    restarted(run)
    runs = run.writer.path.parent
    record = find_record(None, runs)
    assert list_records(runs) == [record]
    assert find_record(f"{record.run}/attempts/0", runs) == record.attempt(0)
    assert record.attempt(None) == record.attempt(1) == record
    with pytest.raises(Exception, match=golden(1)):
        record.attempt(7)


def _lines(record: Record) -> list[str]:
    return (record.path / EVENTS).read_text().splitlines()


def test_the_page_of_an_attempt_lists_all_of_them(run: Launched, tmp_path: Path) -> None:
    restarted(run)
    record = Record(path=run.writer.path)
    page = write_report(record).path.read_text()
    assert '<h2 id="attempts-title">' in page
    assert golden(1) in page
    assert "<b>1</b>" in page
    earlier = write_report(record.attempt(0), tmp_path).path
    assert earlier.name == f"{record.run}-attempts-0.html"
    assert "<b>0</b>" in earlier.read_text()


def test_who_watches_sees_one_attempt_after_the_other(run: Launched) -> None:
    seen: list[tuple[float, str, int | None, str]] = []
    ranks: list[list[str]] = []

    class Watcher:
        def show(self, now: Now, follower: Follower) -> None:
            seen.extend((one.time_s, one.what, one.rank, one.text) for one in follower.happened)
            ranks.append([rank.node for rank in now.ranks])
            following()

        def close(self) -> None: ...

    def begin_anew() -> None:
        run.prints(1, "last words")
        run.fails(0, world=2)
        run.meet("node1", "node0", "node2")
        run.prints(1, "new\n")

    def end() -> None:
        for rank in range(3):
            run.ends(rank)
        run.over()

    moves = iter([begin_anew, end])

    def following() -> None:
        next(moves, lambda: None)()

    run.meet("node0", "node1")
    run.prints(1, "old\n")
    follow_run(lambda: run.writer.path, [Watcher()])
    assert [text for _, what, _, text in seen if what == "output"] == ["old", "last words", "new"]
    assert next((rank, text) for _, what, rank, text in seen if what == "exited") == (0, "exit 1: ValueError: no")
    assert [text for _, what, _, text in seen if what == "attempt"] == ["attempt 1 begins"]
    assert (ranks[0], ranks[-1]) == (["node0", "node1"], ["node1", "node0", "node2"])


def test_an_attempt_that_ended_because_a_node_came_accuses_nobody_of_what_that_did_to_its_ranks(run: Launched) -> None:
    run.meet("node0", "node1")
    run.collector.fact(NodeCame(run.clock, "node2"))
    run.ends(0, code=None, signal="SIGTERM", stopped=True)
    run.raises(1, golden(1))
    run.meet("node0", "node1", "node2")
    for rank in range(3):
        run.ends(rank)
    result = run.over()
    assert golden(2) in result.reason
    assert result.attempts[0].culprit is None
    assert golden(3) in result.attempts[0].reason


def test_a_rank_that_fails_by_itself_while_a_node_comes_is_named_all_the_same(run: Launched) -> None:
    run.meet("node0", "node1")
    run.collector.fact(NodeCame(run.clock, "node2"))
    run.fails(1, world=2)
    run.meet("node0", "node1", "node2")
    for rank in range(3):
        run.ends(rank)
    result = run.over()
    assert golden(1) in result.reason


def test_many_attempts_keep_few_files_open_and_are_told_briefly(run: Launched) -> None:
    for number in range(24):
        run.meet("node0", "node1")
        run.prints(0, f"attempt {number}\n")
        run.raises(1, f"ValueError: number {number}")
        run.ends(0, code=None, signal="SIGTERM", stopped=True)
    first = "node0:29000"
    run.prints(0, "late\n", key=first)
    folder = str(run.writer.path)
    opened = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
    assert len({Path(path).parent for path in opened if path.startswith(folder)}) < 10
    result = run.over()
    assert result.restarts == 23
    assert Record(path=run.writer.path).attempt(0).log(0) == b"attempt 0\nlate\n"
    assert golden(1) in result.reason
    assert [one.number for one in result.attempts] == list(range(24))


def test_what_a_lost_node_had_not_sent_is_not_told_as_if_it_had_not_happened(run: Launched) -> None:
    run.meet("node0", "node1")
    start = {"k": "start", "t": 1, "wall": 1_000_000_000_000, "recorder": "python", "torch": "2.13", "boot": "b"}
    for rank in (0, 1):
        run.say(f"node{rank}", Trace("r", rank, json.dumps(start).encode() + b"\n", run.key))
    run.collector.fact(NodeLost(run.clock, "node1", "was killed"))
    run.raises(0)
    run.over()
    told = [finding.sentence for finding in explain_run(Record(path=run.writer.path)).findings]
    assert any("Node1 was killed" in sentence for sentence in told)
    assert not any(golden(1) in sentence for sentence in told)


def test_an_end_by_a_launcher_accuses_no_rank_in_the_explanation(run: Launched) -> None:
    run.say("node0", Started(STARTER, 1.0, "node0"))
    run.meet("node0", "node1")
    run.say("node0", Exited(STARTER, run.clock, "node0", signal="SIGKILL"))
    for rank in (0, 1):
        run.ends(rank, code=None, signal="SIGTERM", stopped=True)
    result = run.over()
    assert result.reason == golden(1)
    assert not [finding for finding in explain_run(Record(path=run.writer.path)).findings if finding.ranks]


def test_a_lab_that_is_killed_between_two_attempts_leaves_a_record_that_opens(run: Launched) -> None:
    run.meet("node0", "node1")
    run.prints(0, "said\n")
    run.fails(0, world=2)
    run.writer.attempts[0].move(run.writer.path / "attempts" / "0")
    record = Record(path=run.writer.path)
    assert record.in_progress
    run.writer.close()
    assert not record.in_progress
    assert list_records(run.writer.path.parent) == [record]
    assert record.attempt(0).log(0) == b"said\n"
    assert (record.log(0), [*record.output()], [*record.events()]) == (b"", [], [])
    assert golden(1) in explain_run(record).sentence
    write_report(record)


def test_a_launcher_that_takes_longer_to_begin_anew_than_there_is_time_is_told(run: Launched) -> None:
    run.say("node0", Started(STARTER, 1.0, "node0"))
    run.meet("node0", "node1")
    run.fails(1, world=2)
    run.collector.fact(TimedOut(run.clock, 60.0))
    run.say("node0", Exited(STARTER, run.clock, "node0", signal="SIGKILL", stopped=True))
    assert run.over().reason == (golden(1))


def test_the_loss_of_the_node_where_the_launcher_meets_is_told_as_that(run: Launched) -> None:
    for node in ("node0", "node1", "node2"):
        run.say(node, Started(STARTER, 1.0, node))
    run.meet("node0", "node1", "node2")
    run.collector.fact(NodeLost(run.clock, "node0", "was killed (SIGKILL)"))
    result = run.over()
    assert result.reason == (golden(1))
    assert result.culprit is not None
    assert result.culprit.node == "node0"
