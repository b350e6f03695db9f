"""Drawn schedules: the same for the same seed, of kinds that the engine has, at moments that the run had."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from lab.engine.local.engine import LocalEngine
from lab.engine.protocol import Traits
from lab.errors import UsageError
from lab.features.chaos.trials import DURATIONS_S, Pool, first_occurrence, kinds_drawn, moments_of, schedule_key
from lab.features.faults.fault import When, fault_sentence
from lab.features.faults.kinds import FaultKind, fault_kinds, key_of
from lab.node.messages.agent import Note
from lab.record.events import event_line
from lab.record.layout import EVENTS
from tests.golden import golden
from tests.traces import TraceMaker

NODES, RANKS = ["node0", "node1"], [0, 1]


def pool(seed: int = 7, *kinds: str, most: int = 3) -> Pool:
    moments = [When(rank=rank, op="all_reduce", count=count) for rank in RANKS for count in range(1, 6)]
    found = kinds_drawn("docker", NODES, RANKS, kinds)
    return Pool(random=Random(seed), kinds=found, moments=moments, nodes=NODES, ranks=RANKS, most=most)


def drawn(from_pool: Pool, count: int) -> list[str]:
    tried: set[str] = set()
    return [schedule_key(*schedule) for _ in range(count) if (schedule := from_pool.draw(tried))]


def test_one_seed_draws_the_same_schedules_and_another_one_others() -> None:
    assert drawn(pool(7), 20) == drawn(pool(7), 20)
    assert drawn(pool(7), 20) != drawn(pool(8), 20)


def test_no_schedule_is_drawn_twice_and_the_search_ends_when_all_are() -> None:
    all_of_them = drawn(pool(3, "kill", most=1), 200)
    assert len(set(all_of_them)) == len(all_of_them) == 20  # two nodes, ten moments


def test_a_schedule_has_at_most_as_many_faults_as_were_asked_for() -> None:
    one = pool(most=2)
    lengths = {len(schedule) for _ in range(60) if (schedule := one.draw(set()))}
    assert lengths == {1, 2}


@pytest.mark.parametrize("name", fault_kinds())
def test_what_only_slows_a_run_is_healed_after_a_while(name: str) -> None:
    kind = fault_kinds()[name]
    moments = [When(rank=rank, op=op) for rank in RANKS for op in ("barrier", "all_reduce")]
    trial = Pool(random=Random(1), kinds=[kind], moments=moments, nodes=NODES, ranks=RANKS)
    schedules = [schedule for _ in range(10) if (schedule := trial.draw(set()))]
    assert bool(schedules) == (kind.drawn(trial) is not None)
    for fault in (fault for schedule in schedules for fault in schedule):
        assert (fault.for_s in DURATIONS_S) == (kind.harm == "slows" or kind.passes)
        assert set(fault.what.nodes) <= set(NODES)
        assert set(fault.what.ranks) <= set(RANKS)
        assert fault_sentence({name: type(fault.what).value().dump(fault.what)})


def test_kinds_that_change_data_are_drawn_only_where_they_are_named() -> None:
    assert all(kind.harm != "spoils" for kind in kinds_drawn("docker", NODES, RANKS))


def test_a_kind_that_is_not_known_or_never_drawn_is_refused_with_those_that_are() -> None:
    for word in ("kil", "start"):
        with pytest.raises(UsageError, match=golden(1, word)) as error:
            kinds_drawn("docker", NODES, RANKS, [word])
        assert "kill" in error.value.hint


def test_a_kind_that_the_engine_cannot_do_is_left_out_and_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    kill: type[FaultKind] = fault_kinds()["kill"]
    traits = Traits(cannot={"cable": "has no power to lose there"})
    monkeypatch.setattr(kill, "needs", "cable")
    monkeypatch.setattr(LocalEngine, "traits", traits)
    assert "kill" not in map(key_of, kinds_drawn("local", NODES, RANKS))
    with pytest.raises(UsageError, match=golden(1)):
        kinds_drawn("local", NODES, RANKS, ["kill"])


def test_the_moments_of_a_run_are_its_calls_phases_and_notes(tmp_path: Path) -> None:
    run = TraceMaker(tmp_path / "r")
    for rank in RANKS:
        run.line(rank, "mark", 1, n="backward", e=0)
        run.call(rank, "all_reduce", 2, 3, [[1.0]])
        run.line(rank, "mark", 4, n="backward", e=1)
        run.call(rank, "all_reduce", 5, None if rank else 6, [[1.0]])
    record = run.record()
    values = [(1.0, "step", 1), (2.0, "step", 2), (3.0, "sum", [1.0]), (3.5, "step", 2)]
    notes = [Note(0, time, name=name, value=value) for time, name, value in values]
    (record.path / EVENTS).write_bytes(b"".join(map(event_line, notes)))
    of_rank_0 = [moment for moment in moments_of(record) if moment.rank == 0]
    assert of_rank_0 == [
        When(rank=0, phase="backward"),
        When(rank=0, op="all_reduce"),
        When(rank=0, op="all_reduce", edge="after"),
        When(rank=0, phase="backward", edge="after"),
        When(rank=0, op="all_reduce", count=2),
        When(rank=0, op="all_reduce", count=2, edge="after"),
        When(rank=0, note="step", equals=1),
        When(rank=0, note="step", equals=2),
        When(rank=0, note="sum"),
    ]
    assert When(rank=1, op="all_reduce", count=2, edge="after") not in moments_of(record)
    assert first_occurrence(of_rank_0[5]) == of_rank_0[2]
    assert first_occurrence(of_rank_0[7]) == When(rank=0, note="step")
