"""Which of the processes that scripts started are the ranks of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import RankFacts, RunFacts
from lab.diagnosis.judge import judge_evidence
from lab.features.started.started import find_started
from lab.node.messages.agent import Exited, Joined, number_of
from lab.record.layout import TRACE
from lab.record.read import Record, Started
from lab.record.write import RecordWriter
from tests.golden import golden

Said = tuple[int, int, int, int, str]
"""Worker, the how-manieth of it, rank, world size, place."""


def run_of(workers: int, *joined: Said) -> RunFacts:
    facts = RunFacts(ranks=[RankFacts(rank=rank, node=f"node{rank}", started=0.0) for rank in range(workers)])
    for when, (worker, nth, rank, size, place) in enumerate(joined):
        said = {"pid": 100 + when, "claimed_rank": rank, "world_size": size, "meeting": place}
        facts.add(Joined(number_of(worker, nth), float(when), f"node{worker}", **said))
    return facts


def found(tmp_path: Path, facts: RunFacts, groups: Mapping[int, int] = {}) -> Started:
    (tmp_path / TRACE).mkdir()
    for rank in (rank.rank for rank in facts.ranks):
        ranks = [*range(groups.get(rank, 0))]
        line = f'{{"k":"group","t":1,"g":"0","ranks":{ranks}}}\n' if ranks else ""
        (tmp_path / TRACE / f"rank{rank}.jsonl").write_text(f'{{"k":"start","t":1}}\n{line}')
    return find_started(facts, Record(path=tmp_path))


def told(started: Started) -> dict[int, int | None]:
    return {one.rank: one.process for one in started.ranks}


def test_those_of_all_workers_that_meet_are_ranks_of_one_run(tmp_path: Path) -> None:
    facts = run_of(2, (0, 0, 0, 4, "p"), (1, 0, 2, 4, "p"), (1, 1, 3, 4, "p"), (0, 1, 1, 4, "p"))

    started = found(tmp_path, facts)

    numbers = [number_of(0, 0), number_of(0, 1), number_of(1, 0), number_of(1, 1)]
    assert told(started) == dict(enumerate(numbers))
    assert (started.world_size, started.aside) == (4, ())
    assert [one.node for one in started.ranks] == ["node0", "node0", "node1", "node1"]


def test_where_each_worker_starts_the_same_ranks_those_of_the_first_are_told(tmp_path: Path) -> None:
    facts = run_of(2, (1, 0, 0, 2, "p"), (0, 0, 1, 2, "p"), (1, 1, 1, 2, "p"), (0, 1, 0, 2, "p"))

    started = found(tmp_path, facts)

    assert told(started) == {0: number_of(0, 1), 1: number_of(0, 0)}
    assert {*started.aside} == {number_of(1, 0), number_of(1, 1)}


def test_of_several_meetings_the_last_is_told(tmp_path: Path) -> None:
    facts = run_of(1, (0, 0, 0, 2, "p"), (0, 1, 1, 2, "p"), (0, 2, 1, 2, "p"), (0, 3, 0, 2, "p"), (0, 4, 0, 1, "q"))

    assert told(found(tmp_path, facts)) == {0: number_of(0, 4)}


@pytest.mark.parametrize(("size", "ranks"), [(2, [0, 1]), (3, [])])
def test_a_worker_that_meets_those_that_it_started_is_one_of_the_ranks(
    tmp_path: Path, size: int, ranks: list[int]
) -> None:
    started = found(tmp_path, run_of(1, (0, 0, 1, 2, "p")), {0: size})

    assert list(told(started)) == ranks


def test_workers_that_met_stay_the_ranks_whatever_they_start(tmp_path: Path) -> None:
    started = found(tmp_path, run_of(2, (0, 0, 0, 2, "p"), (0, 1, 1, 2, "p")), {0: 2, 1: 2})

    assert started == Started(aside=(number_of(0, 0), number_of(0, 1)))


def ended(tmp_path: Path, *ends: Exited) -> Evidence:
    facts = run_of(1, (0, 0, 0, 2, "p"), (0, 1, 1, 2, "p"))
    for end in ends:
        facts.add(end)
    facts.assign_started_ranks(found(tmp_path, facts))
    return Evidence(facts=facts, record=Record(path=tmp_path))


RAISED = Exited(number_of(0, 1), 5.0, "node0", code=1, error="ValueError: no", raised=4.0)
TERMINATED = Exited(number_of(0, 0), 6.0, "node0", signal="SIGTERM")
WELL = Exited(0, 7.0, "node0", code=0)


def test_the_rank_that_failed_is_the_culprit_and_not_what_started_it(tmp_path: Path) -> None:
    starter = WELL._replace(code=1, error="ProcessRaisedException: 1", raised=6.5)

    judgement = judge_evidence(ended(tmp_path, RAISED, TERMINATED, starter))

    assert judgement.verdict == "failed"
    assert judgement.reason == golden(1)
    assert judgement.culprit is not None
    assert judgement.culprit.rank == 1


def test_ranks_that_their_worker_outlived_do_not_fail_the_run_but_are_named(tmp_path: Path) -> None:
    judgement = judge_evidence(ended(tmp_path, RAISED, TERMINATED, WELL))

    assert judgement.verdict == "passed"
    assert judgement.reason.endswith(golden(1))


def test_a_worker_that_fails_by_itself_is_no_rank(tmp_path: Path) -> None:
    own = WELL._replace(code=1, error="KeyError: 'x'", raised=6.0)

    judgement = judge_evidence(
        ended(tmp_path, RAISED._replace(code=0, error=""), TERMINATED._replace(signal=None, code=0), own)
    )

    assert judgement.reason == golden(1)
    assert judgement.culprit is not None
    assert judgement.culprit.rank is None


def test_an_end_that_nobody_saw_is_told_as_that(tmp_path: Path) -> None:
    silent = Exited(number_of(0, 1), 5.0, "node0")

    judgement = judge_evidence(ended(tmp_path, silent, TERMINATED, WELL._replace(code=1)))

    assert judgement.reason == golden(1)


def test_the_record_names_traces_by_rank_once_it_is_known_which_those_are(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path, "s")
    facts = run_of(1, (0, 0, 1, 2, "p"), (0, 1, 0, 2, "p"), (0, 2, 0, 9, "q"))
    for number in (0, *facts.joined):
        writer.trace(number, b"%d\n" % number)
    started = find_started(run_of(1, (0, 0, 1, 2, "p"), (0, 1, 0, 2, "p")), Record(path=writer.path))

    writer.assign_ranks(started)
    writer.close()

    texts = {path.name: path.read_text().strip() for path in (writer.path / TRACE).iterdir()}
    assert texts == {
        "worker0.jsonl": "0",
        "rank1.jsonl": str(number_of(0, 0)),
        "rank0.jsonl": str(number_of(0, 1)),
        "process0.2.jsonl": str(number_of(0, 2)),
    }
    assert Record(path=writer.path).started() == started
    assert Record(path=writer.path).ranks() == {0: "node0", 1: "node0"}
