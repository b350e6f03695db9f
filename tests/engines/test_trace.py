"""What is on record beside the calls: phases, buckets, what a lost worker did; and how much is recorded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import Result
from lab.trace.model import Trace
from lab.trace.steps import match_steps
from tests.engines.battery import full
from tests.engines.conftest import each_recorder, lines_of, trace_of
from tests.engines.lessons import Lesson
from tests.golden import golden

Run = Callable[..., Result]
pytestmark = [pytest.mark.trains, pytest.mark.half]


@pytest.mark.long
@each_recorder
@pytest.mark.parametrize("cold", [False, True])
def test_torch_compile_makes_what_it_makes_without_a_recorder(run: Run, recorder: str, cold: bool) -> None:
    recorded = run("compiles.py", nodes=2, env={"LAB_RECORDER": recorder}, cold=cold)
    bare = run("compiles.py", nodes=2, trace=False)

    assert recorded.passed, recorded.reason
    assert bare.passed, bare.reason
    assert bare.ranks[0].notes["step"]["graphs"]["unique_graphs"] >= 2
    for with_it, without in zip(recorded.ranks, bare.ranks, strict=True):
        assert with_it.notes == without.notes
    counts = Counter(mark.name for mark in trace_of(recorded).ranks[0].phases)
    assert counts["step"] >= 4
    assert counts["forward"] >= 4


@each_recorder
def test_a_script_cannot_tell_that_it_is_recorded(run: Run, recorder: str) -> None:
    words = ("traced.py", "says_what_it_sees")
    recorded, bare = run(*words, nodes=2, env={"LAB_RECORDER": recorder}), run(*words, nodes=2, trace=False)

    assert recorded.passed, recorded.reason
    assert len(lines_of(recorded, 0)) > 20
    assert recorded.ranks[0].notes == bare.ranks[0].notes


# -- training


@each_recorder
def test_every_call_that_ddp_makes_from_cpp_is_recorded(traced_once: Callable[..., tuple[Result, Trace]]) -> None:
    result, trace = traced_once("traced.py", "trains", nodes=2)
    assert result.passed, result.reason
    names = {"all_reduce": "c10d::allreduce_", "broadcast": "c10d::broadcast_", "all_gather": "c10d::allgather_"}

    for rank in range(2):
        recorded = Counter(names[call.op] for call in trace.ranks[rank].calls)
        assert recorded == result.ranks[rank].notes["counts"]
        assert recorded["c10d::allreduce_"] >= 8


@each_recorder
def test_the_phases_of_training_are_marked_and_each_call_belongs_to_one(
    traced_once: Callable[..., tuple[Result, Trace]],
) -> None:
    _, trace = traced_once("traced.py", "trains", nodes=2)
    rank = trace.ranks[0]

    counts = Counter(mark.name for mark in rank.phases)
    step = dict.fromkeys(("forward", "loss", "backward", "zero_grad", "step"), 4)
    assert counts == {"init_process_group": 1, "DDP()": 1, "destroy_process_group": 1, **step}
    assert all(mark.end is not None and mark.source.startswith("traced.py:") for mark in rank.phases)
    phases = {call.phase for call in rank.calls}
    assert phases == {"DDP()", "forward", "backward"}
    for call in rank.calls:
        assert (call.op == "all_reduce") == (call.phase == "backward")
        assert call.via in ("DistributedDataParallel.__init__", "DistributedDataParallel.forward", "backward")


@each_recorder
def test_every_all_reduce_of_a_backward_pass_is_that_of_a_bucket(
    traced_once: Callable[..., tuple[Result, Trace]],
) -> None:
    result, trace = traced_once("traced.py", "trains", nodes=2)

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


@each_recorder
def test_a_call_in_which_a_worker_was_killed_is_on_record(traced: Callable[..., tuple[Result, Trace]]) -> None:
    result, trace = traced("traced.py", "dies_in_a_collective", nodes=2)

    assert result.ranks[1].signal == "SIGKILL"
    done, begun = trace.ranks[1].calls
    assert (done.state, begun.state) == ("completed", "unfinished")
    assert begun.inputs[0].values == full(7, 3)
    assert not trace.ranks[1].stopped


@each_recorder
def test_a_run_that_hangs_leaves_the_calls_in_which_it_hung(hang: Run, recorder: str) -> None:
    result = hang("hang.py", "rank_1_never_comes", env={"LAB_RECORDER": recorder})
    trace = trace_of(result)

    assert result.verdict == "hung"
    assert "labnode" not in "".join(rank.stack for rank in result.ranks)
    waited, missing, waited_too = ([call.state for call in trace.ranks[rank].calls] for rank in range(3))
    assert waited == waited_too == [*missing, "unfinished"]
    assert "unfinished" not in missing


@each_recorder
def test_nobody_leaves_a_barrier_before_the_last_has_come(traced: Callable[..., tuple[Result, Trace]]) -> None:
    """In the times of the trace, which come from clocks of different nodes."""
    _, trace = traced("traced.py", "meets_in_barriers", nodes=3)
    steps = [step for step in match_steps(trace) if step.op == "barrier"]

    assert trace.clocks.error_s <= 0.001
    assert len(steps) == 30
    for step in steps:
        assert step.missing == ()
        last_in = max(call.begin for call in step.calls.values())
        assert min(call.end or 0.0 for call in step.calls.values()) >= last_in - trace.clocks.error_s


@each_recorder
def test_forks_are_not_recorded_and_subprocesses_do_not_get_the_trace(
    traced: Callable[..., tuple[Result, Trace]],
) -> None:
    result, trace = traced("traced.py", "forks", nodes=2)

    assert result.passed, result.reason
    assert [call.op for call in trace.ranks[0].calls] == ["all_reduce", "all_reduce"]
    assert "backward" not in [mark.name for mark in trace.ranks[0].phases]
    assert trace.problems == []
    inherited = re.search(r"INHERITED (.*)", result.ranks[0].log)
    assert inherited is not None
    assert "pipe:" in inherited[1]
    assert "trace" not in inherited[1]


@each_recorder
@pytest.mark.parametrize("way", ["fails_in_forward", "fails_in_a_loss", "fails_in_a_collective"])
def test_a_traceback_does_not_show_the_recorder(traced: Callable[..., tuple[Result, Trace]], way: str) -> None:
    result, _ = traced("traced.py", way, nodes=2)

    assert result.verdict == "failed"
    assert f"in {way}" in result.ranks[0].traceback
    for text in (result.ranks[0].traceback, result.ranks[0].log):
        assert "labnode" not in text
        assert "recorder" not in text


@each_recorder
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


@each_recorder
@pytest.mark.parametrize(("limit", "expected"), [(0, (None, False)), (2, (None, True)), (3, ([2.0] * 3, False))])
def test_so_many_values_are_kept_as_were_asked_for(
    run: Run, recorder: str, limit: int, expected: tuple[list[float] | None, bool]
) -> None:
    result = run("collectives.py", trace_values=limit, env={"LAB_RECORDER": recorder})

    [call] = [call for call in trace_of(result).ranks[0].calls if call.inputs and call.inputs[0].count == 3]
    [buffer] = call.outputs
    assert (buffer.values, buffer.summary is not None) == expected


def test_a_recorder_that_there_is_not_is_told(run: Run) -> None:
    result = run("collectives.py", env={"LAB_RECORDER": "pyhton"})

    assert result.passed, result.reason
    why = "recording ended early: LAB_RECORDER is 'pyhton'; allowed: auto, compiled, python, off"
    assert [one for one in trace_of(result).problems if one.startswith("rank 0")] == [f"rank 0: {why}"]
    assert result.reason.endswith(golden(1))


def test_steps_of_messages_are_in_the_order_of_cause(lesson: Lesson) -> None:
    assert shown_steps(lesson("point_to_point/send_recv")) == ["send 0 → 1", "send 1 → 2", "barrier #1"]
    ring = ["send 0 → 1", "send 1 → 2", "send 2 → 0"]
    rounds = [f"{title} in round {number}" for number in range(1, 5) for title in ring]
    assert shown_steps(lesson("point_to_point/ring_all_reduce")) == ["all_reduce #1", *rounds, "barrier #2"]


def shown_steps(result: Result) -> list[str]:
    """Titles of steps, with the rounds of messages."""
    steps = match_steps(trace_of(result))
    return [f"{step.title} in round {step.round}" if step.round else step.title for step in steps]


# -- ranks that a script gives out


OWN_RANKS = """
import os, sys, torch, torch.distributed as dist
worker, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), workers, is_master=False)
# worker 0 in a world of its own, the others in one with their ranks reversed; then all with theirs turned by one
mine = {"rank": 0, "world_size": 1} if worker == 0 else {"rank": workers - 1 - worker, "world_size": workers - 1}
dist.init_process_group("gloo", store=dist.PrefixStore(f"first{mine['world_size']}", store), **mine)
tensor = torch.full((2,), float(worker))
dist.broadcast(tensor, 0)
assert tensor.tolist() == [workers - 1.0 if worker else 0.0] * 2
dist.destroy_process_group()
rank = (worker + 1) % workers
dist.init_process_group("gloo", store=dist.PrefixStore("all", store), rank=rank, world_size=workers)
dist.broadcast(torch.full((2,), float(worker)), 0)
group = dist.new_group([0, 1])
if rank < 2:
    dist.all_reduce(torch.ones(1), group=group)
if rank == 1:
    dist.send(torch.ones(1), 2)
if rank == 2:
    dist.recv(torch.ones(1))
if sys.argv[1:] and rank == 0:
    dist.recv(torch.ones(1), 1)
dist.barrier()
dist.destroy_process_group()
"""


@each_recorder
def test_steps_are_told_in_ranks_of_the_run_where_a_script_gives_out_its_own(
    traced: Callable[..., tuple[Result, Trace]], tmp_path: Path
) -> None:
    script = tmp_path / "own_ranks.py"
    script.write_text(OWN_RANKS)
    result, trace = traced(script, nodes=3)

    assert result.passed, result.reason
    assert "should" not in result.reason
    steps = match_steps(trace)
    assert [(step.op, step.group.ranks, step.source, step.state) for step in steps] == [
        ("broadcast", (0,), 0, "completed"),
        ("broadcast", (2, 1), 2, "completed"),
        ("broadcast", (2, 0, 1), 2, "completed"),
        ("all_reduce", (2, 0), None, "completed"),
        ("send", (2, 0, 1), 0, "completed"),
        ("barrier", (2, 0, 1), None, "completed"),
    ]
    assert not any(step.missing for step in steps)


def test_a_hang_names_whom_a_worker_waits_for_where_a_script_gives_out_its_own_ranks(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "own_ranks.py"
    script.write_text(OWN_RANKS)
    result = run(script, "waits", nodes=3, timeout_s=2)

    assert result.verdict == "hung"
    assert result.reason.startswith(golden(1))
