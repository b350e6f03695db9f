"""What is broken on purpose, on an engine without nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.cluster import Cluster
from lab.engine.protocol import NodeState
from lab.errors import ClusterError, UsageError
from lab.features.faults.detection import describe_fault
from lab.features.faults.fault import START, Fault, When
from lab.features.faults.injection import FaultJournal
from lab.features.faults.kinds.nodes import Kill
from lab.node.messages.agent import Release
from lab.record.events import Fault as FaultEvent
from lab.record.events import FaultFailed, FaultHealed
from lab.record.read import Record
from lab.run.collect import Observer
from tests.fake_engine import FakeEngine, exits, notes, prints
from tests.golden import golden


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").write_text("print()\n")


class Powered(FakeEngine):
    """Remembers which nodes are killed and started, and says so."""

    def __init__(self, acts: dict[int, Sequence[Any]]) -> None:
        super().__init__(acts)
        self.power: list[str] = []

    def kill(self, node: Any) -> None:
        super().kill(node)
        self.power.append(f"kill {node.name}")
        self.states[node.name] = NodeState(running=False, exit_code=137)

    def start(self, cluster: Any, nodes: Any, *, announce: Callable[[str], None]) -> None:
        super().start(cluster, nodes, announce=announce)
        for node in nodes:
            self.power.append(f"start {node.name}")
            self.states[node.name] = NodeState(running=True)


def run(engine: FakeEngine, *faults: Fault) -> Any:
    cluster = Cluster(2, name="c", engine=engine)
    if not engine.clusters:
        cluster.up()
    return cluster.run("s.py", faults=list(faults))


STEPS = [notes("step", 1), prints("at st"), notes("step", 2), prints("ep 2\n"), notes("step", 2), exits()]


@pytest.mark.parametrize(
    ("when", "why"),
    [
        (When(rank=1, note="step", equals=2), "rank 1 noted step = 2"),
        (When(note="step"), "rank 0 noted step = 1"),
        (When(rank=1, log="^at step [2]$"), 'rank 1 printed "at step 2"'),
    ],
)
def test_the_first_event_that_fits_sets_a_fault_off_once_and_the_node_runs_again_after_the_run(
    when: When, why: str
) -> None:
    engine = Powered({0: STEPS, 1: STEPS})
    result = run(engine, Fault(what=Kill(node="node1"), when=when))
    assert engine.power == ["kill node1", "start node1"]
    (told,) = result.faults
    assert [told[name] for name in ("fault", "node", "why", "failed")] == ["kill node1", "node1", why, ""]
    assert 0 <= told["at_s"] <= told["healed_s"]
    assert result.passed, result.reason  # an engine without nodes does not lose one
    assert result.path is not None
    (event,) = [one for one in Record(path=result.path).events() if isinstance(one, FaultEvent)]
    assert (event.fault, event.node, event.why) == ("kill node1", "node1", why)


def test_a_fault_is_healed_after_its_time_or_at_its_event_and_in_a_journal_meanwhile() -> None:
    seen: list[list[str]] = []

    class Watched(Powered):
        def kill(self, node: Any) -> None:
            super().kill(node)
            seen.append([one.description for one in FaultJournal(self.name, "c").standing()])

    ends: list[dict[str, Any]] = [{"for_s": 0.01}, {"until": When(rank=1, note="step", equals=2)}]
    for end in ends:
        engine = Watched({0: [notes("step", 1)], 1: [notes("step", 2), *STEPS[1:]]})
        cluster = Cluster(2, name="c", engine=engine)
        cluster.up()
        kill = Fault(what=Kill(node="node1"), when=When(note="step", equals=1), **end)
        result = cluster.run("s.py", faults=[kill], timeout_s=0.5)
        assert engine.power == ["kill node1", "start node1"]
        assert result.faults[0]["healed_s"] > 0
        assert result.path is not None
        (healed,) = [one for one in Record(path=result.path).events() if isinstance(one, FaultHealed)]
        assert healed.why == ("10 ms had passed" if "for_s" in end else "rank 1 noted step = 2")
    assert seen == [["kill node1"], ["kill node1"]]
    assert not FaultJournal("fake", "c").path.exists()


def test_a_rank_that_is_held_is_let_go_once_the_fault_is_in_force_and_others_at_once() -> None:
    engine = Powered({0: STEPS, 1: STEPS})
    result = run(engine, Fault(what=Kill(node="node1"), when=When(note="step", equals=2)))
    assert result.faults[0]["rank"] in (0, 1)
    told = [one for agent in engine.agents.values() for one in agent.heard if isinstance(one, Release)]
    assert sorted((one.rank, json.loads(one.line)["action"] == {}) for one in told) == [(0, True)] * 3 + [(1, True)] * 3


def test_after_some_time_a_fault_is_done_too() -> None:
    engine = Powered({0: [notes("a", 1)], 1: []})
    cluster = Cluster(2, name="c", engine=engine)
    cluster.up()
    result = cluster.run("s.py", faults=[Fault(what=Kill(node="node1"), when=When(at_s=0.01))], timeout_s=0.5)
    assert (result.verdict, engine.power) == ("hung", ["kill node1", "start node1"])
    assert result.faults[0]["why"] == "10 ms had passed"


def test_what_a_killed_command_broke_is_healed_by_the_next_run_unless_it_is_to_be_kept() -> None:
    engine = Powered({})
    cluster = Cluster(2, name="c", engine=engine)
    cluster.up()
    cluster.fault("kill", "node1")
    assert [one.description for one in cluster.faults()] == ["kill node1"]
    cluster.run("s.py", keep_faults=True)
    assert engine.power == ["kill node1"]
    cluster.run("s.py")
    assert engine.power == ["kill node1", "start node1"]
    assert cluster.faults() == []
    with cluster.fault(Kill(node="node1")):
        assert cluster.heal()
    assert engine.power == ["kill node1", "start node1"] * 2


def test_whoever_watches_is_told_what_is_done_on_purpose() -> None:
    class Watcher(Observer):
        def __init__(self) -> None:
            self.told: list[str] = []

        def progress(self, text: str) -> None:
            self.told.append(text)

    watcher = Watcher()
    fault = Fault(what=Kill(node="node1"), when=When(note="step"))
    Cluster(2, name="c", engine=Powered({0: STEPS})).run("s.py", nodes=2, faults=[fault], observer=watcher)
    assert golden(1) in watcher.told


def test_a_fault_whose_event_never_comes_is_told_and_is_a_failure() -> None:
    engine = Powered({0: STEPS, 1: STEPS})
    result = run(engine, Fault(what=Kill(node="node1"), when=When(note="step", equals=3)))
    assert (result.verdict, result.faults, engine.power) == ("failed", (), [])
    assert result.reason == golden(1)


def test_a_fault_that_cannot_be_done_is_told_and_is_a_failure() -> None:
    engine = Powered({0: STEPS, 1: STEPS})

    def refuse(node: Any) -> None:
        raise ClusterError("the engine is tired")

    engine.kill = refuse  # type: ignore[method-assign]
    engine.states["node1"] = NodeState(running=True)
    result = run(engine, Fault(what=Kill(node="node1"), when=When(note="step")))
    assert result.verdict == "failed"
    assert golden(1) in result.reason
    assert result.path is not None
    (event,) = [one for one in Record(path=result.path).events() if isinstance(one, FaultFailed)]
    assert event.reason == golden(1)
    assert golden(2) in describe_fault(result.faults[0])


def test_faults_of_nodes_and_ranks_that_do_not_take_part_are_refused() -> None:
    for fault, message in (
        (Fault(what=Kill(node="node5"), when=START), "kill node5, but node5 is not part of this run"),
        (
            Fault(what=Kill(node="node1"), when=When(rank=2, note="a")),
            "but rank 2 is not part of this run",
        ),
    ):
        with pytest.raises(UsageError, match=message):
            run(Powered({}), fault)


def test_a_pattern_that_takes_too_long_to_search_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.diagnosis.expectations.LIMIT_S", 1)
    engine = Powered({0: [prints("a" * 40 + "!\n"), exits()]})
    began = time.monotonic()
    result = run(engine, Fault(what=Kill(node="node1"), when=When(log="(a+)+$")))
    assert time.monotonic() - began < 60
    assert golden(1) in result.reason
