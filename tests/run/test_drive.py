"""The conversation with the agents of a run, against agents that follow a script."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import RunFacts, read_facts
from lab.diagnosis.judge import judge_evidence
from lab.engine.protocol import NodeState, Trouble
from lab.errors import ClusterBusy, EngineUnavailable, NodeLost, RecordError
from lab.node.messages import wire
from lab.node.messages.agent import (
    ANOTHERS,
    CHECK,
    FIRST_UID,
    OWN,
    Busy,
    Claimed,
    Cleaning,
    Exited,
    Finished,
    Halted,
    Input,
    InputDelivered,
    Note,
    Output,
    Prepare,
    Ready,
    Refused,
    Started,
    Stop,
    Store,
    Trace,
)
from lab.node.recorder.journal import clock_id
from lab.node.users import GROUP
from lab.plan.cluster import MASTER_PORT, Shape
from lab.plan.plan import PlanOptions, make_plan
from lab.record.events import Clock
from lab.record.read import Record
from lab.record.write import RecordWriter
from lab.run import agent_channels
from lab.run import drive as subject
from lab.run.agent_channels import AgentChannels
from lab.run.collect import EXCHANGES, Observer, clock_of
from lab.run.drive import Driver
from lab.run.options import Job, RunOptions, Stdin
from lab.run.snapshot import read_snapshot
from lab.spec.load import scenario_from_script
from lab.spec.scenario import Tracing
from tests.fake_engine import ANY_RANK, END, FakeAgent, FakeEngine, exits, notes, prints
from tests.golden import golden


class Driven:
    """A plan on a fake engine, ready to be driven."""

    def __init__(
        self, folder: Path, engine: FakeEngine, *, nodes: int, processes: int = 1, timeout_s: float = 5.0
    ) -> None:
        script = folder / "script" / "s.py"
        script.parent.mkdir()
        script.write_text("print()\n")
        self.engine = engine
        self.cluster = engine.create("c", Shape(nodes=nodes), run=None, announce=lambda text: None)
        self.writer = RecordWriter(folder / "runs", "s")
        self.plan = make_plan(
            scenario_from_script(script),
            "r",
            self.cluster,
            PlanOptions(nproc_per_node=processes, timeout_s=timeout_s),
        )
        self.snapshot = read_snapshot(script.parent)
        self.writer.describe("", script, self.plan.to_json())
        self.record = Record(path=self.writer.path)

    def drive(
        self,
        observer: Any = None,
        stdin: Stdin | None = None,
    ) -> RunFacts:
        self.channels = self.engine.connect(self.cluster, self.cluster.nodes)
        job = Job(self.plan, self.cluster, self.engine, self.writer, observer or Observer(), RunOptions())
        self.driver = Driver(job, self.channels, stdin or Stdin(), self.snapshot)
        try:
            facts = self.driver.drive()
        finally:
            self.writer.close()
        assert read_facts(self.record) == facts  # whatever happened
        return facts

    def with_check(self) -> Driven:
        """The same, whose scenario has a check of its own."""
        scenario = self.plan.scenario
        expect = replace(scenario.expect, check="c.py:check")
        self.plan = replace(self.plan, scenario=replace(scenario, expect=expect))
        return self


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))  # a driver has more patience on a busy machine

    def make(engine: FakeEngine, nodes: int = 2, **more: Any) -> Driven:
        return Driven(tmp_path, engine, nodes=nodes, **more)

    return make


def operations(driven: Driven, node: str = "node0") -> list[str]:
    return driven.engine.agents[node].operations


def test_every_node_is_claimed_given_the_files_prepared_let_go_and_released(drive):
    driven = drive(FakeEngine(), nodes=3)
    facts = driven.drive()
    assert [rank.code for rank in facts.ranks] == [0, 0, 0]
    for node in ("node0", "node1", "node2"):
        assert operations(driven, node) == ["claim", "content", "folder", "prepare", "go", "finish"]


def test_agents_are_told_what_to_record_and_it_arrives_in_the_record(drive):
    lines = ['{"k":"start"}\n', '{"k":"stop"}\n']
    driven = drive(FakeEngine({1: [*(Trace("", 1, line.encode()) for line in lines), exits(0)]}))
    driven.drive()
    claim = driven.engine.agents["node1"].heard[0]
    assert (claim.trace, claim.trace_values) == (True, None)
    assert (driven.record.path / "trace" / "rank1.jsonl").read_text() == "".join(lines)
    assert not (driven.record.path / "trace" / "rank0.jsonl").exists()


def test_agents_are_told_who_the_workers_are_and_the_first_what_to_empty(drive):
    driven = drive(FakeEngine())
    driven.plan = replace(driven.plan, one_user=True, fresh=True)
    driven.drive()
    first, second = (driven.engine.agents[node].heard for node in ("node0", "node1"))
    assert [(heard[0].uid, heard[0].gid) for heard in (first, second)] == [(FIRST_UID, GROUP)] * 2
    prepared = [next(one for one in heard if isinstance(one, Prepare)) for heard in (first, second)]
    assert [one.emptied for one in prepared] == ["/shared", ""]


class Held(Stdin):
    """Somebody at a terminal who keeps ranks from going on until he has been looked for so often."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.began = time.monotonic()
        self.over: float | None = None

    @property
    def held(self) -> bool:
        return self.over is None

    @property
    def held_s(self) -> float:
        return (self.over or time.monotonic()) - self.began

    def poll(self) -> float:
        self.looks -= 1
        if not self.looks:
            self.over = time.monotonic()
        return 0.1


def test_the_time_limit_stops_while_somebody_at_a_terminal_holds_the_run(drive):
    driven = drive(FakeEngine({0: [], 1: []}), timeout_s=0.1)
    held = Held(looks=8)
    facts = driven.drive(stdin=held)
    assert held.over is not None
    assert facts.timed_out


def test_workers_are_told_what_they_read_and_the_lab_what_becomes_of_it(drive):
    class Typed(Stdin):
        def __init__(self) -> None:
            self.heard: list[Any] = []

        def kind(self, rank: int) -> str:
            return OWN if rank == 1 else ANOTHERS

        def env(self, rank: int) -> dict[str, str]:
            return {"TERM": "vt100"} if rank == 1 else {}

        def start_reading(self, agents: AgentChannels) -> None:
            agents.send("node1", Input("r", 1, b"x"))

        def handle_message(self, message: Any) -> None:
            if isinstance(message, (InputDelivered, Exited)):
                self.heard.append(type(message))

        def stop_reading(self) -> None:
            self.heard.append("end")

    driven, typed = drive(FakeEngine({1: [InputDelivered("", ANY_RANK, 1), exits(0)]})), Typed()
    driven.drive(stdin=typed)
    workers = [
        worker
        for node in ("node0", "node1")
        for heard in driven.engine.agents[node].heard
        if isinstance(heard, Prepare)
        for worker in heard.workers
    ]
    assert [(worker.stdin, worker.env.get("TERM")) for worker in workers] == [(ANOTHERS, None), (OWN, "vt100")]
    assert operations(driven, "node1") == ["claim", "content", "folder", "prepare", "go", "input", "finish"]
    assert sorted(typed.heard[:-2], key=str) == [Exited, Exited, InputDelivered]
    assert typed.heard[-2:] == ["end", "end"]


def test_where_nothing_is_to_be_recorded_agents_are_told_so(drive):
    driven = drive(FakeEngine())
    driven.plan = replace(driven.plan, trace=Tracing(on=False))
    driven.drive()
    assert not driven.engine.agents["node0"].heard[0].trace


def test_the_record_tells_how_far_the_clock_of_each_node_is_off(drive, monkeypatch):
    monkeypatch.setattr(FakeAgent, "ahead_s", 100.0)
    claimed = Claimed("", time.time() + 90, "another kernel")
    driven = drive(FakeEngine(answers={"node1": {"claim": [claimed]}}))
    driven.drive()
    clocks = [event for event in driven.record.events() if isinstance(event, Clock) and event.node == "node1"]
    assert {clock.boot for clock in clocks} == {"another kernel"}
    assert len(clocks) > 1
    for clock in clocks[1:]:
        assert 0 < clock.error_s < 1
        assert abs(clock.offset_s - 100) <= clock.error_s + 1e-6
        assert abs(clock.monotonic_s - 100 - time.monotonic()) < 60
    assert operations(driven, "node0") == ["claim", "content", "folder", "prepare", "go", "finish"]
    assert operations(driven, "node1").count("asktime") in (EXCHANGES, 2 * EXCHANGES)


def test_a_node_of_the_same_kernel_has_the_same_clock():
    assert clock_of("n", Claimed("r", 5.0, clock_id()), 1.0, 2.0) == Clock(2.0, "n", 0.0, 0.0, clock_id())
    assert clock_of("n", Claimed("r", 5.0, "other"), 1.0, 2.0) == Clock(2.0, "n", 3.5, 0.5, "other")


def test_only_the_first_node_hosts_the_store(drive):
    driven = drive(FakeEngine(), processes=2)
    driven.drive()
    first, second = (driven.engine.agents[name].heard[3] for name in ("node0", "node1"))
    assert first.store == Store("node0", MASTER_PORT, 4)
    assert second.store is None
    assert [worker.rank for worker in second.workers] == [2, 3]


def test_nobody_is_let_go_before_all_are_prepared(drive):
    order = []
    engine = FakeEngine()
    driven = drive(engine)
    original = engine.connect

    def connect(*arguments):
        channels = original(*arguments)
        for agent in engine.agents.values():
            answer = agent.answer

            def spy(message, answer=answer, name=agent.node):
                order.append((wire.kind_of(message), name))
                return answer(message)

            agent.answer = spy
        return channels

    engine.connect = connect
    driven.drive()
    assert order.index(("go", "node0")) > order.index(("prepare", "node1"))


def test_output_and_notes_reach_record_and_observer_in_order(drive):
    seen = []

    class Watch(Observer):
        def output(self, rank: int, node: str, stream: int, data: bytes, when: float) -> None:
            seen.append((rank, node, stream, data))

    engine = FakeEngine({0: [prints("a\n"), prints("b\n", 2), notes("x", [1.5]), exits()], 1: [prints("ü\n"), exits()]})
    driven = drive(engine)
    facts = driven.drive(Watch())
    assert [piece for piece in seen if piece[0] == 0] == [(0, "node0", 1, b"a\n"), (0, "node0", 2, b"b\n")]
    assert driven.record.log(0) == b"a\nb\n"
    assert driven.record.log(1) == "ü\n".encode()
    assert facts.ranks[0].notes == {"x": [1.5]}
    kinds = [type(event) for event in driven.record.events()]
    assert kinds.count(Started) == kinds.count(Exited) == 2
    assert kinds.count(Note) == 1


def test_a_failure_stops_the_others(drive):
    driven = drive(FakeEngine({0: [exits(1, error="ValueError: no")], 1: []}))
    facts = driven.drive()
    assert facts.ranks[1].stopped
    assert facts.ranks[1].signal == "SIGKILL"
    assert not facts.timed_out
    stops = [message for message in driven.engine.agents["node1"].heard if isinstance(message, Stop)]
    assert stops
    assert not stops[0].hard


def test_a_rank_that_ignores_the_request_is_killed(drive):
    engine = FakeEngine({0: [exits(1)], 1: []}, answers={"node1": {"stop": []}})
    driven = drive(engine)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subject, "_STOP_DEADLINE_S", 0.1)
        driven.drive()
    assert [message.hard for message in engine.agents["node1"].heard if isinstance(message, Stop)] == [False, True]
    assert operations(driven, "node1")[-1] == "finish"


def test_a_run_that_does_not_end_times_out_with_the_stack_of_each_rank(drive):
    driven = drive(FakeEngine({0: [], 1: []}), timeout_s=0.2)
    facts = driven.drive()
    assert facts.timed_out
    assert [("line 1" in facts.ranks[0].stack), ("line 2" in facts.ranks[1].stack)] == [True, True]
    assert all(rank.stopped for rank in facts.ranks)
    assert operations(driven)[-1] == "finish"


def test_a_node_in_trouble_is_told_and_not_waited_for_where_it_cannot_answer(drive):
    told = []

    class Watch(Observer):
        def progress(self, text: str) -> None:
            told.append(text)

    engine = FakeEngine({0: [], 1: []}, answers={"node1": {"stacks": [], "stop": [], "finish": []}})
    engine.troubles["node1"] = Trouble("was paused", silent=True)
    facts = drive(engine, timeout_s=0.1).drive(Watch())
    assert (told, facts.troubled["node1"].how) == (["node1 was paused"], "was paused")
    assert facts.ranks[0].stopped
    assert not facts.ranks[1].over


def test_a_worker_that_a_signal_stopped_and_that_goes_on_again_is_no_halted_one(drive):
    halted = [Halted(rank, 1.0, signal="SIGSTOP") for rank in (0, 1)]
    facts = drive(FakeEngine({0: [halted[0]], 1: [halted[1], Halted(1, 2.0)]}), timeout_s=0.1).drive()
    assert [rank.halted for rank in facts.ranks] == ["SIGSTOP", ""]
    assert facts.duration_s == pytest.approx(0.2, abs=0.15)


def test_a_node_that_dies_in_mid_run_is_a_lost_node(drive):
    driven = drive(FakeEngine({0: [], 1: [prints("last words\n"), END]}))
    facts = driven.drive()
    (lost,) = facts.lost_nodes
    assert (lost.node, lost.how) == ("node1", "was killed (SIGKILL)")
    assert facts.ranks[1].node_lost
    assert facts.ranks[0].stopped
    assert driven.record.log(1) == b"last words\n"


@pytest.mark.parametrize("operation", ["claim", "prepare"])
def test_a_node_that_dies_before_the_run_began_is_an_error(drive, operation: str):
    driven = drive(FakeEngine(answers={"node1": {operation: [END]}}))
    with pytest.raises(NodeLost, match=golden(1)):
        driven.drive()
    assert operations(driven)[-1] == "finish"
    assert "go" not in operations(driven)


def test_a_node_whose_agent_cannot_answer_before_the_run_began_is_not_waited_for(drive, monkeypatch):
    monkeypatch.setattr(agent_channels, "_TICK_S", 0.02)
    engine = FakeEngine(answers={"node1": {"claim": [], "prepare": [], "finish": []}})
    engine.troubles["node1"] = Trouble("was stopped", silent=True)
    driven = drive(engine)
    with pytest.raises(NodeLost, match=golden(1)):
        driven.drive()
    assert "go" not in operations(driven)


def test_a_node_that_was_removed_is_said_to_be(drive):
    engine = FakeEngine(
        {0: [END], 1: [END]}, states={n: NodeState(running=False, gone=True) for n in ("node0", "node1")}
    )
    facts = drive(engine).drive()
    assert [lost.how for lost in facts.lost_nodes] == ["was removed", "was removed"]


def test_an_engine_that_is_gone_is_not_a_lost_node(drive):
    engine = FakeEngine({0: [END], 1: [END]}, states={n: EngineUnavailable("it is gone") for n in ("node0", "node1")})
    facts = drive(engine).drive()
    assert facts.engine_lost == "it is gone"
    assert facts.lost_nodes == []


def test_an_agent_that_refuses_ends_the_run_before_it_begins(drive):
    engine = FakeEngine(answers={"node1": {"prepare": [Refused("", "prepare", "port 29500 is taken")]}})
    driven = drive(engine)
    facts = driven.drive()
    assert facts.refused == golden(1)
    assert not driven.driver.began
    assert "go" not in operations(driven)
    assert operations(driven)[-1] == "finish"


def test_an_agent_that_somebody_else_has_is_an_error_that_says_who(drive):
    busy = Busy("", "theirs", "eve@there", 12.0)
    driven = drive(FakeEngine(answers={"node1": {"claim": [busy], "content": [], "folder": [], "prepare": []}}))
    with pytest.raises(ClusterBusy, match=golden(1)):
        driven.drive()
    assert operations(driven)[-1] == "finish"


def test_an_agent_that_says_nothing_is_waited_for_until_the_deadline_and_named(drive, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subject, "_ANSWER_DEADLINE_S", 0.1)
    driven = drive(FakeEngine(answers={"node1": {"prepare": []}}))
    with pytest.raises(NodeLost, match=golden(1)):
        driven.drive()


def test_a_release_that_nobody_confirms_is_not_waited_for_without_end(drive, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subject, "_FINISH_DEADLINE_S", 0.1)
    monkeypatch.setattr(subject, "_FETCH_DEADLINE_S", 0.1)
    facts = drive(FakeEngine(answers={"node1": {"finish": []}})).drive()
    assert [rank.code for rank in facts.ranks] == [0, 0]


def test_ctrl_c_stops_everything_at_once_and_is_on_record(drive):
    class Interrupt(Observer):
        def output(self, *arguments: object) -> None:
            raise KeyboardInterrupt

    driven = drive(FakeEngine({0: [prints("x\n")], 1: []}))
    facts = driven.drive(Interrupt())
    assert facts.interrupted
    for node in ("node0", "node1"):
        assert operations(driven, node)[-2:] == ["stop", "finish"]
        assert driven.engine.agents[node].heard[-2].hard


def test_a_record_that_cannot_be_written_cancels_the_run(drive, monkeypatch: pytest.MonkeyPatch):
    driven = drive(FakeEngine({0: [prints("x\n")], 1: []}))

    def fail(*arguments: object) -> None:
        raise RecordError("no room")

    monkeypatch.setattr(driven.writer, "output", fail)
    with pytest.raises(RecordError):
        driven.drive()
    assert operations(driven, "node0")[-1] == operations(driven, "node1")[-1] == "finish"


def test_a_record_that_cannot_take_the_last_traces_still_waits_until_the_nodes_are_clean(drive, monkeypatch):
    engine = FakeEngine(answers={"node0": {"finish": [Trace("", 0, b"{}\n"), Finished("")]}})
    driven = drive(engine, nodes=1)

    def fail(*arguments: object) -> None:
        raise RecordError("no room")

    monkeypatch.setattr(driven.writer, "trace", fail)
    driven.drive()
    assert driven.driver.collector.finished == {"node0"}


def test_a_node_that_is_late_to_report_its_files_still_cleans_up(drive, monkeypatch):
    monkeypatch.setattr(subject, "_FINISH_DEADLINE_S", 0.1)
    monkeypatch.setattr(subject, "_FETCH_DEADLINE_S", 0.1)
    driven = drive(FakeEngine(answers={"node1": {"finish": []}}))
    driven.drive()
    assert operations(driven, "node1")[-2:] == ["finish", "fetch"]
    assert operations(driven, "node0")[-1] == "finish"


def test_what_belongs_to_another_run_is_passed_over(drive):
    stale = [
        Output("old", 0, 1, 1.0, b"stale\n"),
        Exited(0, 1.0, run="old", code=1),
        Ready("node0", "2.0"),
        Claimed("", 0.0, ""),
    ]
    driven = drive(FakeEngine(answers={"node0": {"claim": stale}}))
    facts = driven.drive()
    assert [rank.code for rank in facts.ranks] == [0, 0]
    assert list(driven.record.output()) == []


def test_the_check_runs_on_the_first_node_after_all_ranks_ended(drive):
    driven = drive(FakeEngine()).with_check()
    facts = driven.drive()
    assert facts.rank(CHECK).code == 0
    assert operations(driven)[-2:] == ["check", "finish"]
    assert "check" not in operations(driven, "node1")


def test_the_check_is_left_out_when_a_rank_failed(drive):
    driven = drive(FakeEngine({0: [exits(1)]})).with_check()
    driven.drive()
    assert "check" not in operations(driven)


def test_a_check_that_does_not_end_says_so(drive, monkeypatch):
    monkeypatch.setattr(subject, "_CHECK_DEADLINE_S", 0.1)
    driven = drive(FakeEngine(answers={"node0": {"check": []}})).with_check()
    assert driven.drive().rank(CHECK).error == golden(1)


def test_every_event_is_a_line_of_json(drive):
    driven = drive(FakeEngine({0: [prints("x\n"), exits(1)], 1: []}))
    driven.drive()
    for line in (driven.writer.path / "events.jsonl").read_text().splitlines():
        assert "time" in json.loads(line)


def test_a_node_that_gives_the_run_up_ends_it_at_once_and_says_why(drive):
    engine = FakeEngine({0: [], 1: [Refused("", "run", "its command did not report for 60 s")]})
    driven = drive(engine, timeout_s=60.0)
    facts = driven.drive()
    assert facts.refused == golden(1)
    assert not facts.timed_out
    assert operations(driven)[-1] == "finish"
    assert judge_evidence(Evidence(facts=facts, record=driven.record)).verdict == "error"


def test_a_node_that_does_not_know_the_run_any_more_is_noticed_at_the_next_ping(drive, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(agent_channels, "_PING_S", 0.01)
    monkeypatch.setattr(agent_channels, "_TICK_S", 0.01)
    gone = [Refused("", "ping", "node1 does not belong to run 'r'")]
    facts = drive(FakeEngine({0: [], 1: []}, answers={"node1": {"ping": gone}}), timeout_s=60.0).drive()
    assert facts.refused == golden(1)


def test_a_node_that_is_still_being_cleaned_is_waited_for(drive, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subject, "_FINISH_DEADLINE_S", 0.05)
    monkeypatch.setattr(subject, "_FETCH_DEADLINE_S", 0.04)
    waits: list[float] = []
    listen_for = AgentChannels.listen_for

    def note(self: AgentChannels, done, seconds: float, **how: bool) -> bool:
        waits.append(seconds)
        return listen_for(self, done, seconds, **how)

    monkeypatch.setattr(AgentChannels, "listen_for", note)
    facts = drive(FakeEngine(answers={"node1": {"finish": [Cleaning(""), Cleaning("")]}})).drive()
    assert (waits.count(0.05), waits.count(0.04)) == (2, 1)  # what came lengthened the first of them once
    assert not facts.refused
