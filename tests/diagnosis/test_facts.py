"""The facts of a run as its record tells them: the same as at its end, and the same judgement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.diagnosis.evidence import Evidence, read_evidence
from lab.diagnosis.facts import RankFacts, RunFacts, read_facts
from lab.diagnosis.judge import judge_evidence
from lab.node.messages.agent import Exited, Started
from lab.record.events import NodeLost
from lab.record.layout import EVENTS, LOGS, PLAN
from lab.record.read import Record
from tests.diagnosis.test_judge import CASES, HANGS, rank, stopped


def write(folder: Path, facts: RunFacts) -> Record:
    """A record that tells these facts, as a run writes one."""
    (folder / LOGS).mkdir()
    workers = [{"rank": r.rank, "node": r.node, "local_rank": 0, "expected_code": r.expected_code} for r in facts.ranks]
    plan = {"timeout_s": facts.timeout_s, "memory_bytes": facts.memory_bytes, "workers": workers}
    (folder / PLAN).write_text(json.dumps(plan))
    events: list[dict[str, Any]] = []
    for each in facts.ranks:
        of_rank = {"rank": each.rank, "node": each.node}
        events.append({"event": "started", **of_rank, "pid": 1, "time": each.started})
        events += [{"event": "note", **of_rank, "name": n, "value": v, "time": 1.0} for n, v in each.notes.items()]
        if each.stopped and each.stack:
            events.append({"event": "stack", **of_rank, "text": each.stack, "time": each.stack_time or 8.0})
        if each.ended is not None:
            events.append({"event": "exited", **of_rank, "time": each.ended, **_end(each)})
    events += [{"event": "node lost", **node._asdict()} for node in facts.lost_nodes]
    events += [{"event": "halted", "rank": r.rank, "time": 7.0, "signal": r.halted} for r in facts.ranks if r.halted]
    events += [{"event": "node troubled", **trouble._asdict()} for trouble in facts.troubled.values()]
    events += [{"event": "timed out", "time": 9.0}] if facts.timed_out else []
    events += [{"event": "interrupted", "time": 9.0}] if facts.interrupted else []
    events += [{"event": "refused", "node": "node0", "reason": facts.refused, "time": 9.0}] if facts.refused else []
    events.append({"event": "over", "duration_s": facts.duration_s, "time": 9.0})
    (folder / EVENTS).write_text("".join(json.dumps(event) + "\n" for event in events))
    return Record(path=folder)


def _end(facts: RankFacts) -> dict[str, Any]:
    told = ("code", "signal", "out_of_memory", "stopped", "error", "traceback", "raised")
    return {**{name: getattr(facts, name) for name in told}, "stack": "" if facts.stopped else facts.stack}


@pytest.mark.parametrize("case", [*CASES, *HANGS])
def test_a_run_is_judged_from_its_record_as_at_its_end(tmp_path: Path, case: str) -> None:
    facts, *_ = {**CASES, **HANGS}[case]
    record = write(tmp_path, facts)
    assert judge_evidence(read_evidence(record)) == judge_evidence(Evidence(facts=facts, record=record))


@pytest.mark.parametrize(
    "facts",
    [
        RunFacts(ranks=[rank(0), rank(1, 3, expected_code=3, notes={"x": [1.5], "y": None})], duration_s=0.5),
        RunFacts(ranks=[stopped(0), rank(1, 1)], interrupted=True, duration_s=2.0),
        RunFacts(ranks=[rank(0, None, ended=None)], refused="node0 could not start the run: its port is taken"),
        RunFacts(ranks=[rank(0, None, signal="SIGSEGV", stack="where it crashed")], memory_bytes=1 << 30),
    ],
)
def test_all_facts_come_back(tmp_path: Path, facts: RunFacts) -> None:
    assert read_facts(write(tmp_path, facts)) == facts


def test_what_a_lost_node_took_with_it_is_only_what_ran_there_and_had_not_ended() -> None:
    facts = RunFacts(ranks=[RankFacts(rank=n, node="node0" if n < 2 else "node1") for n in range(3)])
    facts.add(Exited(rank=0, time=1.0, code=0))
    facts.add(NodeLost(2.0, "node0", "was killed"))
    assert [each.node_lost for each in facts.ranks] == [False, True, False]
    assert [each.over for each in facts.ranks] == [True, True, False]


def test_ranks_of_which_there_is_no_plan_are_known_by_their_events() -> None:
    facts = RunFacts(ranks=[])
    for number in (2, 0):
        facts.add(Started(rank=number, node=f"node{number}", time=1.0))
    assert [(each.rank, each.node) for each in facts.ranks] == [(0, "node0"), (2, "node2")]
