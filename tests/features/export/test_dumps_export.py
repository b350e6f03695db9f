"""Traces for torchfrtrace and Holistic Trace Analysis: read back as those read them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from lab.features.export.flight_recorder import rank_dumps
from lab.record.read import Record
from lab.trace.model import Trace
from lab.trace.read import read_trace
from lab.trace.steps import Step, match_steps
from tests.traces import TraceMaker

pytestmark = pytest.mark.unit


def opened(record: Record) -> tuple[Trace, list[Step]]:
    trace = read_trace(record)
    return trace, match_steps(trace)


@pytest.fixture
def everything(tmp_path: Path) -> Record:
    """Four ranks call one of each kind, in the default group and in one of two ranks, with messages between."""
    made = TraceMaker(tmp_path / "run", 4)
    made.group("1", [1, 3], desc="pair")
    ranks = range(4)
    for rank in ranks:
        mine = [float(rank)]
        made.call(rank, "all_reduce", 1, 2, [[1.0] * 8], [[4.0] * 8], red="SUM")
        made.call(rank, "broadcast", 3, 4, [mine], [[2.0]], root=2)
        made.call(rank, "reduce", 5, 6, [mine], root=1)
        made.call(rank, "all_gather", 7, 8, [mine], [[0.0], [1.0], [2.0], [3.0]])
        made.call(rank, "gather", 9, 10, [mine], [[0.0], [1.0], [2.0], [3.0]] if rank == 0 else [], root=0)
        made.call(rank, "scatter", 11, 12, [[1.0]] * 4 if rank == 3 else [], [[1.0]], root=3)
        made.call(rank, "reduce_scatter", 13, 14, [[1.0]] * 4, [[4.0]])
        made.call(rank, "all_to_all", 15, 16, [[1.0] * (1 + rank)] * 4, [[1.0] * (1 + other) for other in ranks])
        made.call(rank, "barrier", 17, 18)
    for rank in (1, 3):
        made.call(rank, "all_gather_into_tensor", 19, 20, [[1.0]], [[1.0, 1.0]], group="1")
    made.call(0, "send", 21, 22, [[1.0, 2.0]], peer=2)
    made.call(2, "recv", 21, 22, [], [[1.0, 2.0]], peer=0)
    made.call(3, "send", 23, 24, [[5.0]], group="1", peer=0)
    made.call(1, "recv", 23, 24, [], [[5.0]], group="1", peer=1)
    return made.record()


def dumps_of(record: Record) -> dict[str, Any]:
    return {name: pickle.loads(data) for name, data in rank_dumps(*opened(record))}


# -- flight recorder dumps


def verdict_of(record: Record, folder: Path) -> list[Any]:
    """What torchfrtrace finds wrong: collectives that do not match, or that ranks are missing from."""
    pytest.importorskip("torch.distributed.flight_recorder", reason="needs a torch with torchfrtrace as a package")
    from torch.distributed.flight_recorder.components.builder import build_db
    from torch.distributed.flight_recorder.components.config_manager import JobConfig
    from torch.distributed.flight_recorder.components.loader import read_dir

    folder.mkdir()
    for name, data in rank_dumps(*opened(record)):
        (folder / name).write_bytes(data)
    arguments = JobConfig().parse_args([str(folder), "-p", "rank_"])
    details, version = read_dir(arguments)
    database = build_db(details, arguments, version)
    assert database.collectives
    return [one for one in database.collectives if one.missing_ranks or not one.pass_check]


def test_torchfrtrace_finds_nothing_wrong_where_nothing_was(everything: Record, tmp_path: Path) -> None:
    assert verdict_of(everything, tmp_path / "dumps") == []


def test_torchfrtrace_names_who_is_missing_what_differs_and_a_message_that_nobody_took(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    for rank in range(2):
        made.call(rank, "all_reduce", 1, None, [[1.0]])
    made.call(2, "recv", 1, None, [], [[1.0]], peer=0)
    found = verdict_of(made.record(stop=False), tmp_path / "dumps")
    assert {(one.collective_name, *sorted(one.missing_ranks)) for one in found} == {
        ("gloo:all_reduce", 2),
        ("gloo:recv 1<-0", 0),
    }
    made = TraceMaker(tmp_path / "other", 2)
    made.call(0, "all_reduce", 1, None, [[1.0]])
    made.call(1, "broadcast", 1, None, [[1.0]], root=0)
    (found,) = verdict_of(made.record(stop=False), tmp_path / "other_dumps")
    assert {one.type_of_mismatch.state.name for one in found.mismatch_collectives.values()} == {
        "COLLECTIVE_TYPE_MISMATCH"
    }


def test_a_dump_has_the_state_the_place_and_the_group_of_every_call(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    made.call(0, "all_reduce", 1, 2, [[1.0, 2.0]], at="sub/train.py:7")
    made.call(0, "all_reduce", 3, None, [[1.0] * 3])
    dump = dumps_of(made.record(stop=False))["rank_0"]
    done, waiting = dump["entries"]
    assert dump["version"] == "2.10"
    assert dump["pg_config"] == {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    assert dump["pg_status"]["0"] == {
        "last_enqueued_collective": 2, "last_started_collective": 2, "last_completed_collective": 1
    }  # fmt: skip
    assert done["frames"] == [{"name": "main", "filename": "sub/train.py", "line": 7}]
    assert (done["state"], done["input_sizes"], done["input_dtypes"]) == ("completed", [[2]], ["Float"])
    assert done["time_discovered_completed_ns"] - done["time_created_ns"] == 1_000_000
    assert (waiting["state"], waiting["retired"], waiting["collective_seq_id"]) == ("started", False, 2)


def test_a_message_to_a_rank_that_there_is_not_is_left_out(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 2)
    made.call(0, "send", 1, None, [[1.0]], peer=5)
    assert dumps_of(made.record(stop=False))["rank_0"]["entries"] == []


def test_a_call_in_a_group_that_its_rank_is_not_in_is_left_out(tmp_path: Path) -> None:
    made = TraceMaker(tmp_path / "run", 3)
    made.group("1", [1, 2])
    made.call(0, "all_reduce", 1, 2, [[1.0]], group="1")
    assert dumps_of(made.record())["rank_0"]["entries"] == []
