from __future__ import annotations

import inspect
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lab import Cluster
from lab.errors import LabError, RanksFailed, RanksHung, UsageError
from lab.record.read import Record
from tests.engines.conftest import MakeCluster
from tests.golden import golden

pytestmark = pytest.mark.half

HERE = Path(__file__).name
Call = Callable[..., list[Any]]


@pytest.fixture
def called(make_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster of three nodes whose records are the test's.

    What is sent to it finds torch here: each process that looks for tests would import it at the top, for a second.
    """
    global torch, dist
    import torch
    import torch.distributed as dist

    monkeypatch.chdir(tmp_path)
    cluster = make_cluster(nodes=3)
    yield cluster
    cluster.end_calls()


class Sums(NamedTuple):
    rank: int
    total: torch.Tensor


def total(value: float) -> Sums:
    tensor = torch.full((2,), value + dist.get_rank())
    dist.all_reduce(tensor)
    return Sums(dist.get_rank(), tensor)


def line_of(function: Callable[..., object], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return next(first + number for number, line in enumerate(lines) if text in line)


def test_a_function_runs_on_every_rank_and_its_values_come_back_by_rank(called: Cluster) -> None:
    offset = 10

    def shifted(factor: int) -> int:
        from math import prod

        return prod([factor, dist.get_rank()]) + offset

    first = called.call(total, 1.0)
    assert [one.rank for one in first] == [0, 1, 2]
    assert all(torch.equal(one.total, torch.tensor([6.0, 6.0])) for one in first)
    assert called.call(shifted, factor=3) == [10, 13, 16]
    result = called.end_calls()
    assert result is not None
    assert result.passed, result.reason


@pytest.mark.local_first
def test_a_call_finds_its_process_as_a_fresh_one_is(called: Cluster) -> None:
    def litter() -> tuple[int, float]:
        os.environ["LITTER"] = "1"
        os.chdir("/")
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(3)
        dist.new_group([0, 1])
        return os.getpid(), torch.rand(1).item()

    def look() -> tuple[Any, ...]:
        groups = len(dist.distributed_c10d._world.pg_map)
        return os.getpid(), "LITTER" in os.environ, os.getcwd() == "/", torch.get_default_dtype(), groups

    first, second = called.call(litter), called.call(litter)
    assert {value for _, value in first} == {value for _, value in second}
    assert called.call(look) == [(pid, False, False, torch.float32, 1) for pid, _ in second]
    assert called.call(torch.initial_seed) != [3, 3, 3]
    assert called.call(os.getpid, fresh=True) != [pid for pid, _ in second]


@pytest.mark.local_first
def test_what_a_rank_raises_is_raised_here_and_the_next_call_gets_new_ranks(called: Cluster) -> None:
    def fails(limit: int) -> None:
        if dist.get_rank() == 2:
            raise ValueError(f"more than {limit}")
        dist.barrier()

    with pytest.raises(ValueError, match=golden(1)) as caught:
        called.call(fails, 7)
    assert isinstance(caught.value, RanksFailed)
    assert caught.value.ranks == (2,)
    *_, last = caught.traceback
    assert (last.path, last.lineno + 1) == (Path(__file__), line_of(fails, "raise ValueError"))
    assert golden(2) in caught.value.__notes__
    assert caught.value.record is not None
    result = Record(path=caught.value.record).result()
    assert (result.verdict, result.culprit and result.culprit.rank) == ("failed", 2)
    assert called.call(dist.get_rank) == [0, 1, 2]


@pytest.mark.local_first
def test_a_call_that_hangs_is_judged_and_nobody_waits_for_it(called: Cluster) -> None:
    def hangs() -> None:
        if dist.get_rank() != 1:
            dist.barrier()
        time.sleep(600)

    for timeout_s in (1, 5, 25):
        called.call(total, 1.0)
        with pytest.raises(RanksHung) as caught:
            called.call(hangs, timeout_s=timeout_s)
        told = str(caught.value)
        if "ranks 0 and 2 waited" in told:  # else this machine was too busy for them to get there
            break
    assert told.startswith(f"the run did not end within {timeout_s} s: rank 1 was ")
    assert f"{HERE}:{line_of(hangs, 'time.sleep')}" in told
    assert golden(1, HERE, line_of(hangs, "dist.barrier")) in told
    assert called.call(dist.get_rank) == [0, 1, 2]


@pytest.mark.local_first
def test_a_rank_that_ends_in_the_midst_of_a_call_is_named(called: Cluster) -> None:
    def killed() -> None:
        if dist.get_rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()

    def leaves() -> None:
        dist.barrier()  # else one that is still connecting fails by itself
        if dist.get_rank() == 1:
            os._exit(0)

    with pytest.raises(RanksFailed, match=r"rank 0 .*SIGKILL"):
        called.call(killed)
    with pytest.raises(RanksFailed, match=golden(1)):
        called.call(leaves)


@pytest.mark.local_first
def test_only_data_comes_back_and_only_what_can_be_sent_is_sent(called: Cluster) -> None:
    def unfit() -> object:
        return {"handle": dist.group.WORLD}

    with pytest.raises(LabError, match=golden(1)):
        called.call(unfit)
    with pytest.raises(UsageError, match=golden(2)):
        called.call(total, (one for one in "abc"))
    tensors = called.call(lambda: {"dense": torch.eye(2), "grad": torch.nn.Parameter(torch.ones(1))})
    assert torch.equal(tensors[0]["dense"], torch.eye(2))
    assert not tensors[0]["dense"].requires_grad
    assert tensors[0]["grad"].requires_grad


@pytest.mark.local_first
def test_the_callers_own_modules_are_found_by_the_ranks(
    called: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine_to_lend").mkdir()
    (tmp_path / "mine_to_lend" / "__init__.py").write_text("")
    (tmp_path / "mine_to_lend" / "sums.py").write_text("def twice(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def uses() -> int:
        from mine_to_lend.sums import twice

        return int(twice(dist.get_rank()))

    assert called.call(uses) == [0, 2, 4]


@pytest.mark.local_first
def test_a_run_ends_the_calls_before_it(called: Cluster) -> None:
    assert called.call(dist.get_world_size) == [3, 3, 3]
    result = called.run(Path(__file__).parent / "scripts" / "collectives.py")
    assert result.passed, result.reason
    assert called.call(dist.get_world_size) == [3, 3, 3]


@pytest.mark.local_first
def test_what_ranks_print_is_printed_here(called: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    called.call(lambda: print(f"from {dist.get_rank()} \x1b[2J"))
    assert capsys.readouterr().out.splitlines() == [f"rank {rank}: from {rank} \\x1b[2J" for rank in range(3)]


@pytest.mark.local_first
@pytest.mark.parametrize(
    "forged",
    [
        b"V" + (1 << 50).to_bytes(8, "big"),
        b"S" + (9).to_bytes(8, "big") + b"\xff" * 9,
        b"Z" + bytes(8),
        b"F" + (2).to_bytes(8, "big") + b"[]",
        b"F" + (200_000).to_bytes(8, "big") + b"[" * 200_000,
    ],
    ids=["endless", "noise", "unknown", "no failure", "nested"],
)
def test_answers_that_are_none_end_the_call_with_a_sentence(called: Cluster, forged: bytes) -> None:
    def forges() -> None:
        from labnode.features.functions.on_node import call_channels as ends  # type: ignore[import-not-found]

        if dist.get_rank() == 1:
            os.write(ends.ends[1], forged)
        time.sleep(600)

    with pytest.raises(RanksFailed, match=golden(1)):
        called.call(forges)
    assert called.call(dist.get_rank) == [0, 1, 2]


@pytest.mark.local_first
def test_a_value_that_names_what_it_should_run_is_refused(called: Cluster, tmp_path: Path) -> None:
    proof = tmp_path / "proof"

    def forges() -> None:
        import json

        from labnode.features.functions.on_node import call_channels as ends

        plain = json.dumps(["fields", "subprocess", "Popen", {"args": ["touch", str(proof)]}]).encode()
        body = len(plain).to_bytes(8, "big") + plain
        os.write(ends.ends[1], b"V" + len(body).to_bytes(8, "big") + body)
        time.sleep(600)

    with pytest.raises(LabError, match=golden(1)):
        called.call(forges)
    assert not proof.exists()
    assert called.call(dist.get_rank) == [0, 1, 2]
