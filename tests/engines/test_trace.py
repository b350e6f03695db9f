"""What is on record of the calls of torch.distributed, by each recorder."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from lab import Result
from lab.operations import OPERATIONS
from lab.record.read import Record
from lab.trace.model import Call, Trace
from lab.trace.read import read_trace
from lab.trace.steps import match

Run = Callable[..., Result]
Lines = list[dict[str, Any]]
SCRIPTS = Path(__file__).parent / "scripts"
BATTERY = (SCRIPTS / "battery.py").read_text().splitlines()
ANY = object()
"""In the place of values that are not looked at."""


@pytest.fixture(params=["auto", "python"])
def recorder(request: pytest.FixtureRequest, engine: str) -> str:
    """The recorder that a run picks by itself: on Docker the compiled one. And the one for all other images."""
    return str(request.param)


@pytest.fixture
def traced(run: Run, recorder: str) -> Callable[..., tuple[Result, Trace]]:
    """Runs a script with a recorder; its result and what was recorded."""

    def traced(*words: object, **options: Any) -> tuple[Result, Trace]:
        result = run(*words, env={"LAB_RECORDER": recorder}, **options)
        return result, trace_of(result)

    return traced


def trace_of(result: Result) -> Trace:
    assert result.path is not None
    return read_trace(Record(path=result.path))


def lines_of(result: Result, rank: int) -> Lines:
    assert result.path is not None
    path = result.path / "trace" / f"rank{rank}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


# -- every operation


@dataclass
class Expected:
    """A call that the battery makes."""

    label: str
    """The comment at the end of its line."""
    op: str
    before: Any = ANY
    """Values of each tensor that goes in."""
    after: Any = ANY
    """Values of each tensor that comes out."""
    more: dict[str, Any] = field(default_factory=dict)
    """What else is on record."""

    @property
    def source(self) -> str:
        [number] = [n for n, line in enumerate(BATTERY, 1) if line.endswith(f"  # {self.label}")]
        return f"battery.py:{number}"


def full(value: float, count: int = 4) -> list[float]:
    return [float(value)] * count


def expected_calls(rank: int) -> list[Expected]:
    """What a rank of three calls in the battery, in order, computed without torch."""
    everybody, sizes = range(3), [1, 2, 3]
    pairs = [full(i, 2) for i in everybody]
    mine = sizes[rank]
    first = sum(sizes[:rank])
    calls = [
        Expected("all_reduce", "all_reduce", [full(rank)], [full(3)], {"reduce_op": "SUM", "bytes_in": 16}),
        Expected("all_reduce async", "all_reduce", [full(rank)], [full(2)], {"reduce_op": "MAX", "asynchronous": True}),
        Expected("all_reduce future", "all_reduce", [full(rank + 1)], [full(6)], {"reduce_op": "PRODUCT"}),
        Expected("broadcast", "broadcast", [full(rank)], [full(1)], {"root": 1, "asynchronous": False}),
        Expected("reduce", "reduce", [full(rank)], [full(3)] if rank == 2 else ANY, {"root": 2, "reduce_op": "SUM"}),
        Expected("all_gather", "all_gather", [full(rank, 2)], pairs, {"bytes_in": 8, "bytes_out": 24}),
        Expected("all_gather_into_tensor", "all_gather_into_tensor", [full(rank, 2)], [[*chain(*pairs)]]),
        Expected("gather", "gather", [full(rank, 2)], pairs if rank == 1 else [], {"root": 1}),
        Expected(
            "scatter", "scatter", [full(10 * i, 2) for i in everybody] if rank == 2 else [], [full(10 * rank, 2)],
            {"root": 2, "bytes_out": 8},
        ),
        Expected("reduce_scatter", "reduce_scatter", [full(rank + i, 2) for i in everybody], [full(3 + 3 * rank, 2)]),
        Expected(
            "reduce_scatter_tensor", "reduce_scatter_tensor", [[*chain(*(full(rank + i, 2) for i in everybody))]],
            [full(3 + 3 * rank, 2)], {"reduce_op": "SUM", "bytes_in": 24, "bytes_out": 8},
        ),
        Expected(
            "all_to_all", "all_to_all", [full(10 * rank + i, 2) for i in everybody],
            [full(10 * i + rank, 2) for i in everybody],
        ),
        Expected(
            "all_to_all_single", "all_to_all_single", [[10.0 * rank + i for i in everybody]],
            [[10.0 * i + rank for i in everybody]], {"splits": None},
        ),
        Expected(
            "all_to_all_single split", "all_to_all_single", [[float(i) for i in range(6)]],
            [[float(first + i) for i in range(mine)] * 3], {"splits": ((mine,) * 3, (1, 2, 3))},
        ),
    ]  # fmt: skip
    if rank == 0:
        calls += [
            Expected("send", "send", [full(7)], [], {"peer": 1, "tag": 3, "seq": None}),
            Expected("isend", "send", [full(8)], [], {"peer": 1, "tag": 0}),
        ]
    if rank == 1:
        calls += [
            Expected("recv", "recv", [], [full(7)], {"peer": 0, "tag": 3, "seq": None, "bytes_out": 16}),
            Expected("recv from any", "recv", [], [full(8)], {"peer": 0}),
        ]
    calls += [
        Expected("batch", "send", [full(rank)], [], {"peer": (rank + 1) % 3}),
        Expected("batch", "recv", [], [full((rank - 1) % 3)], {"peer": (rank - 1) % 3}),
        Expected("barrier", "barrier", [], [], {"bytes_in": 0}),
        Expected("monitored_barrier", "monitored_barrier", [], []),
        Expected("all_gather_object", "all_gather", more={"bytes_in": 8}),
        Expected("all_gather_object", "all_gather"),
        Expected("coalesced", "all_reduce_coalesced", [full(rank, 1), full(2 * rank, 3)], [full(3, 1), full(6, 3)]),
        Expected(
            "all_reduce_coalesced", "all_reduce_coalesced", [full(rank, 1), full(2 * rank, 3)], [full(3, 1), full(6, 3)]
        ),
        Expected("functional", "all_reduce", [full(rank)], [full(3)]),
    ]
    if rank > 0:
        calls += [
            Expected("broadcast in a pair", "broadcast", [full(rank)], [full(2)], {"root": 2, "seq": 1}),
            Expected("all_reduce in a pair", "all_reduce", [full(rank)], [full(3)], {"seq": 2}),
        ]
    else:
        calls.append(Expected("all_reduce alone", "all_reduce", [full(0)], [full(0)], {"seq": 1}))
    numbers = [n * (rank + 1) for n in (1, -2, 2**40)]
    endless = [pytest.approx(0.1), "nan", "inf", "-inf"]
    table = [float(4 * row + column) for column in range(4) for row in range(3)]
    return [
        *calls,
        Expected("integers", "broadcast", [numbers], [[1, -2, 2**40]], {"bytes_in": 24}),
        Expected("booleans", "broadcast", [[True, False]], [[True, False]], {"bytes_in": 2}),
        Expected("bfloat16", "broadcast", [[1.5, -2.25]], [[1.5, -2.25]], {"bytes_in": 4}),
        Expected("doubles", "broadcast", [[0.1, 1e300]], [[0.1, 1e300]], {"bytes_in": 16}),
        Expected("not finite", "broadcast", [endless], [endless]),
        Expected("complex", "broadcast", [[1.5, -2.0, 0.0, 3.0]], [[1.5, -2.0, 0.0, 3.0]], {"bytes_in": 16}),
        Expected("transposed", "broadcast", [table], [table]),
        Expected("summary", "broadcast", [None], [None], {"bytes_in": 4000}),
        Expected("sample", "broadcast", [None], [None], {"bytes_in": 40_000}),
        Expected("nothing", "broadcast", [[]], [[]], {"bytes_in": 0}),
        Expected("sparse", "all_reduce", [None], [None]),
        Expected("last", "barrier"),
        Expected("refused", "all_reduce", [full(rank)], more={"state": "failed", "reduce_op": "BAND"}),
    ]


def test_every_call_is_recorded_as_it_was_made(traced: Callable[..., tuple[Result, Trace]]) -> None:
    result, trace = traced("battery.py", nodes=3)

    assert result.passed, result.reason
    assert trace.problems == []
    for rank in range(3):
        expected = expected_calls(rank)
        calls = trace.ranks[rank].calls
        assert [call.op for call in calls] == [wanted.op for wanted in expected]
        for call, wanted in zip(calls, expected, strict=True):
            compare(call, wanted)


def test_the_recorders_keep_to_the_table_of_operations(traced: Callable[..., tuple[Result, Trace]]) -> None:
    result, _ = traced("battery.py", nodes=3)
    assert result.passed, result.reason
    begun = [line for rank in range(3) for line in lines_of(result, rank) if line["k"] == "begin"]

    for line in begun:
        row = OPERATIONS[line["op"]]
        said = ("red" in line, "root" in line, "peer" in line)
        assert said == (row.reduces, row.rooted, row.sends or row.receives), line
        assert row.moves_data or not line.get("in"), line
    not_by_gloo = {"all_gather_coalesced", "all_gather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced"}
    assert {line["op"] for line in begun} >= set(OPERATIONS) - not_by_gloo


def compare(call: Call, wanted: Expected) -> None:
    assert (call.source, call.function) == (wanted.source, "<module>"), wanted
    if wanted.before is not ANY:
        assert [buffer.values for buffer in call.inputs] == wanted.before, wanted
    if wanted.after is not ANY:
        assert [buffer.values for buffer in call.outputs] == wanted.after, wanted
    found = {name: getattr(call, name) for name in wanted.more}
    assert found == wanted.more, wanted
    if "state" not in wanted.more:
        assert call.state == "completed", wanted


def test_the_ranks_of_a_group_agree_on_what_it_did(traced: Callable[..., tuple[Result, Trace]]) -> None:
    _, trace = traced("battery.py", nodes=3)

    assert sorted(group.ranks for group in trace.groups.values()) == [(0,), (0, 1, 2), (1, 2)]
    for step in match(trace):
        assert step.missing == (), step
        if not step.message:
            assert len({(call.op, call.seq, call.reduce_op, call.root) for call in step.calls.values()}) == 1


def test_large_tensors_are_summarised_and_larger_ones_from_a_sample(
    traced: Callable[..., tuple[Result, Trace]],
) -> None:
    _, trace = traced("battery.py", nodes=3)
    calls = {call.source: call for call in trace.ranks[0].calls}
    summary = calls[Expected("summary", "").source].inputs[0].summary
    sample = calls[Expected("sample", "").source].outputs[0].summary

    assert summary is not None
    assert (summary["n"], summary["min"], summary["max"]) == (1000, 0, 999)
    assert summary["norm"] == pytest.approx(sum(i * i for i in range(1000)) ** 0.5)
    assert "sampled" not in summary
    assert sample is not None
    assert (sample["n"], sample["min"]) == (10_000, 0)
    assert sample["sampled"] == 1024
    assert 9900 < sample["max"] <= 9999
    for other in (trace.ranks[1], trace.ranks[2]):
        same = {call.source: call for call in other.calls}[Expected("summary", "").source].inputs[0].summary
        assert same == summary


# -- the recorders, and the ways in which a worker starts


def test_the_recorder_for_other_images_writes_what_the_compiled_one_does(run: Run, engine: str) -> None:
    compiled, python = (run("battery.py", nodes=3, env={"LAB_RECORDER": name}) for name in ("auto", "python"))

    assert compiled.passed, compiled.reason
    assert python.passed, python.reason
    if engine == "docker":
        assert lines_of(compiled, 0)[0]["recorder"] == "compiled"
    for rank in range(3):
        assert lines_of(python, rank)[0]["recorder"] == "python"
        assert comparable(lines_of(python, rank)) == comparable(lines_of(compiled, rank))


def test_a_cold_worker_records_what_a_warm_one_does(traced: Callable[..., tuple[Result, Trace]]) -> None:
    (warm, _), (cold, _) = traced("battery.py", nodes=3), traced("battery.py", nodes=3, cold=True)

    assert warm.passed, warm.reason
    assert cold.passed, cold.reason
    for rank in range(3):
        assert comparable(lines_of(cold, rank)) == comparable(lines_of(warm, rank))


def comparable(lines: Lines) -> tuple[Lines, Lines]:
    """What does not differ between traces of the same: beginnings in order, ends in the order of their beginnings."""
    partial = {line["i"] for line in lines if line.get("op") == "reduce"}  # what it leaves elsewhere than at its root
    kept = [
        {key: plain(value) for key, value in line.items() if key != "t" and (key != "ov" or line["i"] not in partial)}
        for line in lines
    ]
    begun = [line for line in kept if line["k"] not in ("start", "end")]
    ended = sorted((line for line in kept if line["k"] == "end"), key=lambda line: line["i"])
    return begun, ended


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key != "hash"}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return f"{value:.4g}" if isinstance(value, float) else value


@pytest.mark.parametrize("cold", [False, True])
def test_torch_compile_makes_what_it_makes_without_a_recorder(run: Run, recorder: str, cold: bool) -> None:
    recorded = run("compiles.py", nodes=2, env={"LAB_RECORDER": recorder}, cold=cold)
    bare = run("compiles.py", nodes=2, trace=False)

    assert recorded.passed, recorded.reason
    assert bare.passed, bare.reason
    assert bare.ranks[0].notes["step"]["graphs"]["unique_graphs"] >= 2
    for with_it, without in zip(recorded.ranks, bare.ranks, strict=True):
        assert with_it.notes == without.notes
    counts = Counter(mark.name for mark in trace_of(recorded).ranks[0].marks)
    assert counts["step"] >= 4
    assert counts["forward"] >= 4


def test_a_script_cannot_tell_that_it_is_recorded(run: Run, recorder: str) -> None:
    words = ("traced.py", "says_what_it_sees")
    recorded, bare = run(*words, nodes=2, env={"LAB_RECORDER": recorder}), run(*words, nodes=2, trace=False)

    assert recorded.passed, recorded.reason
    assert len(lines_of(recorded, 0)) > 20
    assert recorded.ranks[0].notes == bare.ranks[0].notes


# -- training


def test_every_call_that_ddp_makes_from_cpp_is_recorded(traced: Callable[..., tuple[Result, Trace]]) -> None:
    result, trace = traced("traced.py", "trains", nodes=2)
    assert result.passed, result.reason
    names = {"all_reduce": "c10d::allreduce_", "broadcast": "c10d::broadcast_", "all_gather": "c10d::allgather_"}

    for rank in range(2):
        recorded = Counter(names[call.op] for call in trace.ranks[rank].calls)
        assert recorded == result.ranks[rank].notes["counts"]
        assert recorded["c10d::allreduce_"] >= 8


def test_the_phases_of_training_are_marked_and_each_call_belongs_to_one(
    traced: Callable[..., tuple[Result, Trace]],
) -> None:
    _, trace = traced("traced.py", "trains", nodes=2)
    rank = trace.ranks[0]

    counts = Counter(mark.name for mark in rank.marks)
    step = dict.fromkeys(("forward", "loss", "backward", "zero_grad", "step"), 4)
    assert counts == {"init_process_group": 1, "DDP()": 1, "destroy_process_group": 1, **step}
    assert all(mark.end is not None and mark.source.startswith("traced.py:") for mark in rank.marks)
    phases = {call.phase for call in rank.calls}
    assert phases == {"DDP()", "forward", "backward"}
    for call in rank.calls:
        assert (call.op == "all_reduce") == (call.phase == "backward")
        assert call.via in ("DistributedDataParallel.__init__", "DistributedDataParallel.forward", "backward")


def test_every_all_reduce_of_a_backward_pass_is_that_of_a_bucket(traced: Callable[..., tuple[Result, Trace]]) -> None:
    result, trace = traced("traced.py", "trains", nodes=2)

    for rank in range(2):
        first, rebuilt = trace.ranks[rank].buckets
        assert (first.rebuilt, rebuilt.rebuilt) == (False, True)
        for layout in (first, rebuilt):
            assert sorted(name for bucket in layout.buckets for name in bucket) == [
                "0.bias", "0.weight", "1.bias", "1.weight", "2.bias", "2.weight"
            ]  # fmt: skip
            assert sum(layout.sizes) == sum(result.ranks[rank].notes["elements"])
        assert len(rebuilt.buckets) > 1
        reductions = [call for call in trace.ranks[rank].calls if call.phase == "backward"]
        assert {call.bucket for call in reductions} == set(range(len(rebuilt.buckets)))
        for call in reductions[-len(rebuilt.buckets) :]:
            assert call.bucket is not None
            assert call.parameters == rebuilt.buckets[call.bucket]


# -- what is lost, and what is not


def test_a_call_in_which_a_worker_was_killed_is_on_record(traced: Callable[..., tuple[Result, Trace]]) -> None:
    result, trace = traced("traced.py", "dies_in_a_collective", nodes=2)

    assert result.ranks[1].signal == "SIGKILL"
    done, begun = trace.ranks[1].calls
    assert (done.state, begun.state) == ("completed", "unfinished")
    assert begun.inputs[0].values == full(7, 3)
    assert not trace.ranks[1].stopped


def test_a_run_that_hangs_leaves_the_calls_in_which_it_hung(hang: Run, recorder: str) -> None:
    result = hang("hang.py", "rank_1_never_comes", env={"LAB_RECORDER": recorder})
    trace = trace_of(result)

    assert result.verdict == "hung"
    assert "labnode" not in "".join(rank.stack for rank in result.ranks)
    waited, missing, waited_too = ([call.state for call in trace.ranks[rank].calls] for rank in range(3))
    assert waited == waited_too == [*missing, "unfinished"]
    assert "unfinished" not in missing


def test_nobody_leaves_a_barrier_before_the_last_has_come(traced: Callable[..., tuple[Result, Trace]]) -> None:
    """In the times of the trace, which come from clocks of different nodes."""
    _, trace = traced("traced.py", "meets_in_barriers", nodes=3)
    steps = [step for step in match(trace) if step.op == "barrier"]

    assert trace.clock_error_s <= 0.001
    assert len(steps) == 30
    for step in steps:
        assert step.missing == ()
        last_in = max(call.begin for call in step.calls.values())
        assert min(call.end or 0.0 for call in step.calls.values()) >= last_in - trace.clock_error_s


def test_forks_are_not_recorded_and_subprocesses_do_not_get_the_trace(
    traced: Callable[..., tuple[Result, Trace]],
) -> None:
    result, trace = traced("traced.py", "forks", nodes=2)

    assert result.passed, result.reason
    assert [call.op for call in trace.ranks[0].calls] == ["all_reduce", "all_reduce"]
    assert "backward" not in [mark.name for mark in trace.ranks[0].marks]
    assert trace.problems == []
    inherited = re.search(r"INHERITED (.*)", result.ranks[0].log)
    assert inherited is not None
    assert "pipe:" in inherited[1]
    assert "trace" not in inherited[1]


@pytest.mark.parametrize("way", ["fails_in_forward", "fails_in_a_loss", "fails_in_a_collective"])
def test_a_traceback_does_not_show_the_recorder(traced: Callable[..., tuple[Result, Trace]], way: str) -> None:
    result, _ = traced("traced.py", way, nodes=2)

    assert result.verdict == "failed"
    assert f"in {way}" in result.ranks[0].traceback
    for text in (result.ranks[0].traceback, result.ranks[0].log):
        assert "labnode" not in text
        assert "recorder" not in text


def test_many_calls_that_overlap_are_all_recorded_and_nothing_deadlocks(
    traced: Callable[..., tuple[Result, Trace]],
) -> None:
    result, trace = traced("recorder_stress.py", 100, nodes=3, timeout_s=150)

    assert result.passed, result.reason
    assert trace.problems == []
    for rank in range(3):
        states = Counter(call.state for call in trace.ranks[rank].calls)
        assert states.keys() == {"completed"}
        assert states["completed"] > 500


# -- how much is recorded


def test_without_a_trace_there_is_none(run: Run) -> None:
    result = run("collectives.py", trace=False)

    assert result.passed, result.reason
    assert result.path is not None
    assert not (result.path / "trace").exists()


@pytest.mark.parametrize(("limit", "kept"), [(0, (None, False)), (2, (None, True)), (3, ([2.0] * 3, False))])
def test_so_many_values_are_kept_as_were_asked_for(
    run: Run, recorder: str, limit: int, kept: tuple[list[float] | None, bool]
) -> None:
    result = run("collectives.py", trace_values=limit, env={"LAB_RECORDER": recorder})

    [call] = [call for call in trace_of(result).ranks[0].calls if call.inputs and call.inputs[0].count == 3]
    [buffer] = call.outputs
    assert (buffer.values, buffer.summary is not None) == kept


def test_a_recorder_that_there_is_not_is_told(run: Run) -> None:
    result = run("collectives.py", env={"LAB_RECORDER": "pyhton"})

    assert result.passed, result.reason
    why = "recording ended early: LAB_RECORDER is 'pyhton'; allowed: auto, compiled, python, off"
    assert f"rank 0: {why}" in trace_of(result).problems
