"""Suites on an engine without nodes, which all workers share."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.cluster import Cluster
from lab.errors import ClusterError, ClusterUnfit, EngineUnavailable, MachineLacks, UsageError
from lab.features.suite.cases import Matrix, SuiteRequest, SuiteResult
from lab.features.suite.run import execute_suite
from lab.features.suite.view import Watcher
from lab.record.read import list_records
from lab.run.lock import ClusterLock
from lab.spec.load import open_scenario
from tests.fake_engine import FakeEngine, exits, prints
from tests.features.suite.cases import scenario
from tests.golden import golden


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, own_homes: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.py").write_text("print()\n")
    return tmp_path


class Notes(Watcher):
    """Keeps what is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.order: list[str] = []

    def begins(self, why: str, cases: int, clusters: int) -> None:
        self.lines.append(why)

    def announce(self, worker: int, text: str) -> None:
        self.lines.append(text)

    def ended(self, outcome, done: int) -> None:
        self.order.append(outcome.case.id)


def run(engine: FakeEngine, names: str = "abc", watcher: Notes | None = None, **more: Any) -> SuiteResult:
    scenarios = [open_scenario(Path(f"{name}.py")) for name in names]
    asked = SuiteRequest(scenarios=scenarios, engine=engine, **{"jobs": 1, **more})
    return execute_suite(asked, watcher or Notes())


def statuses(found: SuiteResult) -> dict[str, str]:
    return {outcome.case.id: outcome.status for outcome in found.outcomes}


FAILS_WITH_TWO = {1: [exits(1)]}


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_case_runs_once_and_the_worst_is_the_exit_code(jobs: int):
    found = run(FakeEngine(FAILS_WITH_TWO), "ab", matrix=Matrix(nodes=(1, 2)), jobs=jobs)
    assert statuses(found) == {
        "a[nodes=1]": "passed", "a[nodes=2]": "failed", "b[nodes=1]": "passed", "b[nodes=2]": "failed",
    }  # fmt: skip
    assert (found.exit_code, found.planned, found.not_run) == (1, 4, 0)
    turns = [record.plan().turn for record in list_records()]
    assert {(turn.suite, turn.of) for turn in turns} == {(found.suite, 4)}
    assert sorted((turn.number, turn.case, turn.attempt) for turn in turns)[1] == (2, "a[nodes=2]", 1)


def passing_from(engine: FakeEngine, run: int) -> FakeEngine:
    """All ranks exit with 1 before this run."""
    connects = []

    def called(call: str) -> None:
        if call == "connect":
            connects.append(call)
            engine.acts = {} if len(connects) >= run else {0: [exits(1)]}

    engine.failure = called
    return engine


def test_what_passes_when_it_is_tried_again_is_flaky():
    found = run(passing_from(FakeEngine(), 3), "a", retries=2)
    assert statuses(found) == {"a": "flaky"}
    assert [one.result.verdict for one in found.outcomes[0].attempts] == ["failed", "failed", "passed"]
    assert found.exit_code == 0
    assert [record.plan().turn.attempt for record in list_records()] == [1, 2, 3]


def test_what_fails_is_tried_no_more_often_than_was_asked_for():
    assert len(run(passing_from(FakeEngine(), 3), "a", retries=1).outcomes[0].attempts) == 2
    assert len(run(passing_from(FakeEngine(), 3), "a").outcomes[0].attempts) == 1


def test_nothing_begins_any_more_after_so_many_failures():
    found = run(FakeEngine({0: [exits(1)]}), most_failures=2)
    assert statuses(found) == {"a": "failed", "b": "failed"}
    assert (found.not_run, found.stopped, found.exit_code) == (1, golden(1), 1)


def test_an_order_by_chance_is_the_same_for_the_same_seed():
    orders = []
    for _ in range(2):
        notes = Notes()
        assert run(FakeEngine(), "abc", notes, shuffle=True, seed=5, repeat=3).seed == 5
        orders.append(notes.order)
    assert orders[0] == orders[1] != sorted(orders[0])


def test_repetitions_find_their_seeds_in_their_environment():
    found = run(FakeEngine(), "a", repeat=2)
    assert found.seed is not None
    seeds = [record.plan().workers[0].env["LAB_SEED"] for record in list_records()]
    assert seeds == [str(found.seed), str(found.seed + 1)]


def test_a_cluster_that_cannot_be_made_is_the_error_of_all_that_need_it_and_tried_once(tmp_path: Path):
    engine = FakeEngine()

    def fail(call: str) -> None:
        if call == "create":
            with (tmp_path / "creates").open("a") as file:
                file.write("x")
            raise ClusterError("no room", "make some")

    engine.failure = fail
    found = run(engine)
    assert set(statuses(found).values()) == {"error"}
    assert {one.attempts[0].result.reason for one in found.outcomes} == {"no room"}
    assert found.outcomes[2].attempts[0].hint == "make some"
    assert (tmp_path / "creates").read_text() == "x"
    assert found.exit_code == 1


@pytest.mark.parametrize("call", ["create", "connect"])
def test_what_this_machine_lacks_something_for_is_skipped_and_says_so(call: str):
    engine = FakeEngine()

    def fail(called: str) -> None:
        if called == call:
            raise MachineLacks("node0: its kernel has no netem", "load it")

    engine.failure = fail
    found = run(engine, retries=2)
    assert found.exit_code == 0
    assert found.counts == {"skipped": 3}
    assert {one.reason for one in found.outcomes} == {golden(1)}


def test_a_suite_without_an_engine_ends():
    engine = FakeEngine()
    begun: list[str] = []

    def fail(call: str) -> None:
        begun.append(call)
        if "create" in begun and call != "remove":
            raise EngineUnavailable("it is gone")

    engine.failure = fail
    found = run(engine)
    assert found.exit_code == 3
    assert found.not_run == 2


def test_what_nobody_foresaw_is_the_error_of_its_case():
    engine = FakeEngine()

    def fail(call: str) -> None:
        if call == "connect":
            raise RuntimeError("no such thing")

    engine.failure = fail
    found = run(engine)
    assert set(statuses(found).values()) == {"error"}
    assert (found.not_run, found.exit_code) == (0, 1)


def test_ctrl_c_ends_a_suite_with_what_was_found_so_far():
    engine, connects = FakeEngine(), []

    def interrupt(call: str) -> None:
        if call == "connect":
            connects.append(call)
            if len(connects) == 2:
                engine.acts = {0: [prints("still here\n")]}
                os.kill(os.getpid(), signal.SIGINT)

    engine.failure = interrupt
    found = run(engine)
    assert statuses(found) == {"a": "passed"}
    assert (found.exit_code, found.stopped, found.not_run) == (130, "interrupted", 2)


def test_sigterm_ends_a_suite_where_ctrl_c_is_ignored():
    engine = FakeEngine({0: [prints("still here\n")]})
    engine.failure = lambda call: os.kill(os.getpid(), signal.SIGTERM) if call == "connect" else None
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for what it starts in the background
    there = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = run(engine)
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, there)
    assert (found.exit_code, found.stopped, found.not_run) == (130, "interrupted", 3)


def test_a_cluster_that_is_being_made_is_not_waited_for_after_ctrl_c():
    engine = FakeEngine()
    create = engine.create

    def create_slowly(*of: Any, announce: Callable[[str], None], **more: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        end = time.monotonic() + 20.0
        while time.monotonic() < end:
            announce("making it")
            time.sleep(0.01)
        return create(*of, announce=announce, **more)

    engine.create = create_slowly  # type: ignore[method-assign]
    found = run(engine)
    assert (found.exit_code, found.stopped, found.not_run) == (130, "interrupted", 3)
    assert not engine.find()


# -- which cluster


def test_a_cluster_that_is_up_and_fits_is_used_and_stays():
    engine, notes = FakeEngine(), Notes()
    Cluster(3, name="c", engine=engine).up()
    found = run(engine, "ab", notes, name="c", jobs=None)
    assert [one.case.nodes for one in found.outcomes] == [3, 3], "a script has as many nodes as the cluster"
    assert {one.attempts[0].result.cluster for one in found.outcomes} == {"c"}
    assert notes.lines == [golden(1)]


@pytest.mark.parametrize("more", [{"matrix": Matrix(nodes=(5,))}, {"jobs": 2}, {"matrix": Matrix(image=("x:1",))}])
def test_a_cluster_that_is_up_and_does_not_fit_is_left_alone(more: dict[str, Any]):
    engine, notes = FakeEngine(), Notes()
    Cluster(3, name="c", engine=engine).up()
    found = run(engine, "a", notes, name="c", **more)
    assert statuses(found).popitem()[1] == "passed"
    assert found.outcomes[0].attempts[0].result.cluster != "c"
    assert any(golden(1) in line for line in notes.lines) == ("jobs" not in more)


def test_a_cluster_that_is_busy_is_not_waited_for():
    engine = FakeEngine()
    Cluster(1, name="c", engine=engine).up()
    with ClusterLock("fake", "c").held("something else"), pytest.raises(ClusterUnfit, match=golden(1)):
        run(engine, "a", name="c")


def test_what_cannot_run_at_all_is_refused():
    from lab.spec.scenario import Expect

    asked = SuiteRequest(scenarios=[scenario(expect=Expect(culprit=4))], matrix=Matrix(nodes=(2,)), engine=FakeEngine())
    with pytest.raises(UsageError, match=golden(1)):
        execute_suite(asked)
    with pytest.raises(UsageError, match=golden(2)):
        run(FakeEngine(), "a", only="x")


def test_python_runs_suites_as_the_command_line_does():
    import lab

    found = lab.run_suite(["a.py", open_scenario(Path("b.py"))], nodes=[1, 2], engine=FakeEngine(FAILS_WITH_TWO))
    assert [one.case.id for one in found.bad] == ["a[nodes=2]", "b[nodes=2]"]
    assert (found.counts, found.exit_code) == ({"passed": 2, "failed": 2}, 1)


def test_a_failure_that_was_to_be_tried_again_is_told_when_ctrl_c_ends_the_suite():
    engine, connects = FakeEngine({0: [exits(1)]}), []

    def interrupt(call: str) -> None:
        if call == "connect":
            connects.append(call)
            if len(connects) == 2:
                engine.acts = {0: [prints("still here\n")]}
                os.kill(os.getpid(), signal.SIGINT)

    engine.failure = interrupt
    found = run(engine, retries=1)
    assert statuses(found) == {"a": "failed"}
    assert (found.exit_code, found.not_run) == (130, 2)
