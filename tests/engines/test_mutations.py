"""The scenario library notices mistakes: scripts are made wrong on purpose, and the run has to say what is wrong.

A row changes one place of a script in a way in which people get it wrong: another source, another operation, one too
few, a factor forgotten, padding left in. What a scenario expects is the same on every engine, so all of this runs on
the local one only.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lab import Cluster, Result
from lab.record.result import Expectation
from lab.spec.find import find_scenarios
from lab.spec.load import load_scenario

FOLDER = Path(__file__).resolve().parents[2] / "scenarios"
FOLDERS = (
    "scatter",
    "collectives",
    "point_to_point",
    "groups",
    "gradients",
    "metrics",
    "ddp",
    "beyond_ddp",
    "checkpoints",
)
HANGS_AFTER_S = 5.0
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # for each rank: all of them share the cores of this machine
_ANYTHING_ELSE = object()


class Note(NamedTuple):
    """The run fails, and the first thing it says is that this note of this rank differs."""

    rank: int
    name: str
    expected: Any
    got: Any = _ANYTHING_ELSE
    """Not stated where it is a float that comes out of training."""


class Calls(NamedTuple):
    """The run fails, and the first thing it says is that this rank called something else than the scenario states."""

    rank: int
    says: str


class Check(NamedTuple):
    """The run fails, and its check says this: for what only the notes of all ranks together can show."""

    says: str


class Raises(NamedTuple):
    """The run fails before any note is compared, because PyTorch refuses; it says on which rank, and this."""

    says: str


class Hangs(NamedTuple):
    """The run has no end, and this is where it says that a rank waits."""

    says: str


class Mutation(NamedTuple):
    """A wrong script: what to replace, by what, and what must come of it."""

    old: str
    new: str
    must: Note | Calls | Check | Raises | Hangs
    times: int = 1
    """How often `old` stands in the script."""


LEFT_RIGHT = "(rank - 1) % world_size, (rank + 1) % world_size"
RIGHT_LEFT = "(rank + 1) % world_size, (rank - 1) % world_size"
COMPLEX = [[[1.0, 1.0], [2.0, 2.0]], [[3.0, 3.0], [4.0, 4.0]], [[5.0, 5.0], [6.0, 6.0]]]
OBJECTS = [{"lr": 0.1, "layers": [10, 10, 5]}, "adam", 3]
LOSSES = ["loss of rank 0: 0.0", "loss of rank 1: 0.25", "loss of rank 2: 0.5"]
LARGE = 2**60

MUTATIONS: dict[str, Sequence[Mutation]] = {
    "scatter": [
        Mutation("[10.0 * i]", "[10.0 * (i + 1)]", Note(0, "received", [0.0], [10.0])),
        Mutation("range(world_size)]", "range(world_size)][::-1]", Note(0, "received", [0.0], [20.0])),
        Mutation("(received, src=0)", "(received, src=1)", Raises("scatter_list")),
    ],
    "collectives/all_gather": [
        Mutation(
            "(everybody, mine)",
            "(everybody[::-1], mine)",
            Note(0, "everybody", [[LARGE + r, -r] for r in (0, 1, 2)], [[LARGE + r, -r] for r in (2, 1, 0)]),
        ),
        Mutation(
            'note("everybody", everybody)',
            'note("everybody", [values.double().long() for values in everybody])',
            Note(0, "everybody", [[LARGE + r, -r] for r in (0, 1, 2)], [[LARGE, -r] for r in (0, 1, 2)]),
        ),
        Mutation("torch.int64", "torch.float64", Note(0, "dtype", "torch.int64", "torch.float64")),
    ],
    "collectives/all_gather_complex": [
        Mutation(
            "2 * rank * (1 + 1j)",
            "2 * rank",
            Note(0, "everybody", COMPLEX, [[[2.0 * r + 1, 1.0], [2.0 * r + 2, 2.0]] for r in range(3)]),
        ),
        Mutation(
            "(everybody, mine)",
            "(everybody, mine.conj().resolve_conj())",
            Note(0, "everybody", COMPLEX, [[[re, -im] for re, im in row] for row in COMPLEX]),
        ),
        Mutation(
            "=torch.complex64", "=torch.complex128", Note(0, "dtype", "torch.complex64", "torch.complex128"), times=2
        ),
    ],
    "collectives/all_gather_into_tensor": [
        Mutation(
            "view(world_size, 2)",
            "view(2, world_size).T",
            Note(0, "viewed", [[0, 1], [10, 11], [20, 21]], [[0, 11], [1, 20], [10, 21]]),
        ),
        Mutation("empty(world_size, 2,", "empty(world_size * 2,", Note(0, "stack", "refused", "accepted")),
    ],
    "collectives/all_gather_object": [
        Mutation("range(rank)", "range(rank + 1)", Note(0, "found", [[], [0], [0, 1]], [[0], [0, 1], [0, 1, 2]])),
    ],
    "collectives/all_reduce": [
        Mutation("op=getattr(dist.ReduceOp, name)", "op=dist.ReduceOp.SUM", Note(0, "PRODUCT", [8, 27, 0], [7, 9, 6])),
        Mutation("else mine.clone()", "else mine", Note(0, "PRODUCT", [8, 27, 0], [343, 729, 216])),
        Mutation("mine.double() if", "mine.double() / 2 if", Note(0, "AVG", [7 / 3, 3.0, 2.0], [7 / 6, 1.5, 1.0])),
    ],
    "collectives/all_to_all": [
        Mutation("10 * rank + i", "10 * i + rank", Note(0, "incoming", [0, 10, 20], [0, 1, 2])),
        Mutation(
            "dist.all_to_all(incoming, outgoing)",
            "dist.all_gather(incoming, outgoing[0])",
            Note(1, "incoming", [1, 11, 21], [0, 10, 20]),
        ),
    ],
    "collectives/all_to_all_single": [
        Mutation(
            "10 * rank + i",
            "10 * rank + i + 1",
            Note(0, "received", [0, 10, 20], [1, 11, 21]),
        ),
        Mutation(
            "received * 100",
            "received * 10",
            Note(0, "back", [0, 100, 100, 200, 200, 200], [0, 10, 10, 20, 20, 20]),
        ),
    ],
    "collectives/async_handles": [
        Mutation(
            "(bucket, async",
            "(bucket, op=dist.ReduceOp.MAX, async",
            Note(0, "buckets", [[3 + 300 * i] * 3 for i in range(4)], [[2 + 100 * i] * 3 for i in range(4)]),
        ),
    ],
    "collectives/async_overlap": [
        Mutation("(x, async", "(x, op=dist.ReduceOp.MAX, async", Note(0, "sum", [6], [3]), times=2),
        Mutation("work.is_completed()\n        print", "True\n        print", Note(0, "pending", True, False)),
    ],
    "collectives/barrier": [
        Mutation(
            "0.05 * rank)  # the higher the rank, the later it comes\n"
            '    store.add("arrivals", 1)\n    arrived = time.time()\n    dist.barrier()\n',
            '0.2 * rank)\n    store.add("arrivals", 1)\n    arrived = time.time()\n',
            Note(0, "seen", 3),
        ),
        Mutation("left = time.time()", "left = time.time() - 1", Check("left the barrier ")),
    ],
    "collectives/broadcast": [
        Mutation("(from_first, src=0)", "(from_first, src=1)", Note(0, "from_first", [0.0, 1.0], [10.0, 11.0])),
        Mutation("    dist.broadcast(from_last, src=last)\n", "", Note(0, "from_last", [20.0, 21.0], [0.0, 1.0])),
    ],
    "collectives/broadcast_object_list": [
        Mutation("src=0", "src=1", Note(0, "objects", OBJECTS, [None, None, None])),
    ],
    "collectives/gather": [
        Mutation(
            "gather_list=collected",
            "gather_list=collected and collected[::-1]",
            Note(0, "collected", [[0, 0], [1, 1], [2, 4]], [[2, 4], [1, 1], [0, 0]]),
        ),
        Mutation("dst=0", "dst=1", Raises("gather_list")),
    ],
    "collectives/gather_object": [
        Mutation("collected, dst", "collected and [*collected], dst", Note(0, "collected", LOSSES, [None] * 3)),
    ],
    "collectives/monitored_barrier": [
        Mutation("rank % 2 == 0", "rank >= 0", Note(0, "missing", [1], [])),
    ],
    "collectives/noncontiguous": [
        Mutation("storage[::2]", "storage[::2].contiguous()", Note(0, "view", [3.0, 2.0], [3.0, 9.0])),
        Mutation("view.contiguous()", "view", Note(0, "packed", [3.0, 9.0])),
    ],
    "collectives/reduce": [
        Mutation("dst=last", "dst=0", Note(2, "SUM", [7, 9, 6])),
        Mutation("op=getattr(dist.ReduceOp, name)", "op=dist.ReduceOp.MAX", Note(2, "SUM", [7, 9, 6], [4, 3, 3])),
    ],
    "collectives/reduce_refused": [
        Mutation(".to(dtype)", "", Note(0, "BAND of torch.float32", "refused", "accepted")),
        Mutation("(total)", "(total, op=dist.ReduceOp.MAX)", Note(0, "sum afterwards", [3], [2])),
    ],
    "collectives/reduce_scatter": [
        Mutation("10.0 * rank + i", "10.0 * i + rank", Note(0, "total", [30.0], [3.0])),
        Mutation("ReduceOp.MAX", "ReduceOp.SUM", Note(0, "largest", [20.0], [30.0])),
    ],
    "collectives/reduce_scatter_tensor": [
        Mutation("100 * rank", "10 * rank", Note(0, "sum", [300, 303], [30.0, 33.0])),
        Mutation("ReduceOp.AVG", "ReduceOp.SUM", Note(0, "average", [100.0, 101.0], [300.0, 303.0])),
    ],
    "collectives/scatter_object_list": [
        Mutation(
            "2 * i + 1",
            "2 * i + 2",
            Note(0, "job", {"shard": 0, "files": ["part0", "part1"]}, {"shard": 0, "files": ["part0", "part2"]}),
        ),
    ],
    "collectives/scatter_rows": [
        Mutation("dealer = world_size - 1", "dealer = 0", Note(0, "row", [0.0, 0.0, 200.0], [0.0, 0.0, 0.0])),
        Mutation("list(matrix)", "list(matrix.T)", Note(1, "row", [1.0, 10.0, 200.0])),
    ],
    "collectives/tutorial_gather": [
        Mutation("cat(tensors)", "cat(tensors[1:])", Note(0, "received", [10.0, 20.0, 30.0], [20.0, 30.0])),
    ],
    "collectives/tutorial_reduce": [
        Mutation("ReduceOp.SUM", "ReduceOp.MAX", Note(0, "received", [60.0], [30.0])),
    ],
    "collectives/tutorial_scatter": [
        Mutation("scatter_list=tensors", "scatter_list=tensors[::-1]", Note(0, "received", [10.0], [30.0])),
    ],
    "point_to_point/batch_isend_irecv": [
        Mutation(LEFT_RIGHT, RIGHT_LEFT, Note(0, "seen", [[0, 0], [2, 4], [1, 1]], [[0, 0], [1, 1], [2, 4]])),
        Mutation("world_size - 1)", "world_size - 2)", Note(0, "seen", [[0, 0], [2, 4], [1, 1]], [[0, 0], [2, 4]])),
        Mutation(
            "        held = arriving\n        seen.append(held)",
            "        seen.append(arriving)",
            Note(0, "seen", [[0, 0], [2, 4], [1, 1]], [[0, 0], [2, 4], [2, 4]]),
        ),
    ],
    "point_to_point/isend_irecv": [
        Mutation(LEFT_RIGHT, RIGHT_LEFT, Note(0, "from_left", [21], [11])),
        Mutation("10 * rank + 2", "10 * rank + 1", Note(0, "from_right", [12], [11])),
    ],
    "point_to_point/recv_any_source": [
        Mutation("range(rank)", "range(rank + 1)", Note(0, "total", 51, 84)),
        Mutation("append(sender)", "append(busy)", Note(0, "senders", [1, 2], [0, 1])),
    ],
    "point_to_point/ring_all_reduce": [
        Mutation(
            "chunks[(rank - step - 1)",
            "chunks[(rank - step)",
            Note(0, "sum", [300 + 3 * i for i in range(6)], [200, 201, 2, 3, 104, 105]),
        ),
        Mutation(".copy_(arriving)", ".add_(arriving)", Note(0, "sum", [300 + 3 * i for i in range(6)])),
    ],
    "point_to_point/send_recv": [
        Mutation("token += rank + 1", "token += rank", Note(0, "passed_on", [1], [0])),
        Mutation("src=rank - 1", "src=0", Hangs("rank 2 waited in recv at send_recv.py")),
    ],
    "point_to_point/tags": [
        Mutation("recv(second, src=0, tag=2)", "recv(first, src=0, tag=2)", Note(1, "second", [201], [0])),
    ],
    "groups/device_mesh": [
        Mutation('("node", "local")', '("local", "node")', Note(0, "along_local", [1], [2])),
    ],
    "groups/group_source": [
        Mutation("group_src=0", "group_src=1", Note(1, "by_group", [10], [20])),
        Mutation("src=world_size - 1", "group_src=0", Note(1, "by_global", [20], [10])),
    ],
    "groups/mesh_by_hand": [
        Mutation("(row_sum, group=row_group)", "(row_sum, group=column_group)", Note(0, "row_sum", [1], [2])),
    ],
    "groups/new_group": [
        Mutation(", group=mine", "", Note(0, "sum", [2], [3])),
        Mutation("(0, world_size, 2)", "(0, world_size - 1, 2)", Note(0, "sum", [2], [0])),
    ],
    "groups/outside_the_group": [
        Mutation("max(1, world_size - 1)", "world_size", Note(0, "x", [3], [6])),
    ],
    "gradients/all_gather_functional": [
        Mutation(
            "own_rows(dist.get_rank())).backward()",
            "own_rows(dist.get_rank())).div(dist.get_world_size()).backward()",
            Note(0, "nn_functional_embedding_ratio", 3.0),
        ),
    ],
    "gradients/all_gather_no_gradient": [
        Mutation("0.0 * own.sum()", "0.1 * own.sum()", Note(0, "ratio", 0.0)),
    ],
    "gradients/all_gather_own_put_back": [
        Mutation(
            "scale * contrastive_loss", "contrastive_loss", Note(0, "weight_ratio_in_ddp_loss_times_world_size", 1.0)
        ),
    ],
    "gradients/all_gather_slice_backward": [
        Mutation("[dist.get_rank()]\n", "[0]\n", Note(0, "weight_ratio_in_ddp", 1 / 3)),
    ],
    "gradients/all_gather_sum_backward": [
        Mutation("        dist.all_reduce(gradient)\n", "", Note(0, "all_rows_embedding_ratio", 3.0)),
    ],
    "gradients/all_gather_variable_length": [
        Mutation(
            "longest) < sizes[:, None]", "longest) >= longest - sizes[:, None]", Note(0, "dim 0, own: ratio", 1.0)
        ),
        Mutation("if ctx.reduce_gradients", "if not ctx.reduce_gradients", Note(0, "dim 0, own: ratio", 1.0)),
        Mutation(".index_select(dim, is_data.nonzero().flatten())", "", Raises("split_sizes")),
    ],
    "gradients/info_nce": [
        Mutation("sum_over_ranks=True", "sum_over_ranks=False", Note(0, "losses_difference", 0.0)),
    ],
    "metrics/averaged_metrics": [
        Mutation("    dist.all_reduce(own_counts)\n", "", Note(0, "accuracy_difference", 0.0)),
        Mutation("    averaged /= world_size\n", "", Check("rank 0: note averaged: expected accuracy ")),
    ],
    "metrics/gathered_metrics": [
        Mutation(
            "logits[: len(test_set)], targets[: len(test_set)]", "logits, targets", Note(0, "accuracy_difference", 0.0)
        ),
        Mutation("stack(gathered, dim=1).flatten()", "cat(gathered)", Note(0, "in_order", True, False)),
    ],
    "ddp/batch_norm_buffers": [
        Mutation(
            "(model, broadcast_buffers=broadcast_buffers)",
            "(model, broadcast_buffers=False)",
            Note(1, "broadcast_difference_from_arithmetic", 0.0),
        ),
    ],
    "ddp/find_unused_parameters": [
        Mutation("    model.zero_grad()\n", "", Note(0, "trunk.weight equals one process", True, False)),
        Mutation(", find_unused_parameters=True", "", Raises("Expected to have finished reduction")),
    ],
    "ddp/fp16_compression": [
        Mutation(".div_(dist.get_world_size())", "", Note(0, "by_hand_is_the_same", True, False)),
    ],
    "ddp/join": [
        Mutation(
            "divide_by_initial_world_size=divide_by_initial_world_size",
            "divide_by_initial_world_size=True",
            Note(0, "by_ranks_that_train_difference", 0.0),
        ),
    ],
    "ddp/large_model": [
        Mutation("inputs.chunk(world_size)[rank]", "inputs.chunk(world_size)[0]", Note(0, "difference", 0.0)),
    ],
    "ddp/no_sync": [
        Mutation(" / len(step)", "", Note(0, "difference", 0.0)),
        Mutation("use_no_sync=True", "use_no_sync=False", Note(0, "bytes_sent", 1980, 7920)),
    ],
    "ddp/static_graph": [
        Mutation("static_graph=static_graph", "static_graph=True", Note(0, "refused_without", True, False)),
    ],
    "ddp/sync_batch_norm": [
        Mutation(
            "total = gradient.clone()\n        dist.all_reduce(total)\n",
            "total = gradient.clone()\n",
            Note(0, "synced_difference", 0.0),
        ),
    ],
    "ddp/toy_loop": [
        Mutation("DistributedDataParallel(ToyModel())", "ToyModel()", Note(0, "difference_after_each_step", [0.0] * 8)),
        Mutation(
            "fingerprint(weights)",
            "fingerprint(weights + 1e-6 * rank)",
            Check("rank 1: note fingerprint_after_each_step:"),
        ),
    ],
    "beyond_ddp/fully_sharded": [
        Mutation(
            "inputs.chunk(world_size, dim=1)[rank]", "inputs.chunk(world_size, dim=1)[0]", Note(0, "difference", 0.0)
        ),
    ],
    "beyond_ddp/pipeline": [
        Mutation(") / MICRO_BATCHES", ")", Note(0, "difference", 0.0)),
        Mutation(
            "stages - 1 - stage)",
            "stages - stage)",
            Note(
                0,
                "order",
                ["F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3"],
                ["F0", "F1", "F2", "B0", "F3", "B1", "B2", "B3"],
            ),
        ),
    ],
    "beyond_ddp/tensor_parallel": [
        Mutation("last_weight.T) + last.bias", "last_weight.T + last.bias)", Note(0, "output_difference", 0.0)),
        Mutation("        dist.all_reduce(gradient)\n", "", Note(0, "input_grad_difference", 0.0)),
    ],
    "beyond_ddp/zero_redundancy_optimizer": [
        Mutation(
            "inputs.chunk(world_size, dim=1)[rank]", "inputs.chunk(world_size, dim=1)[0]", Note(0, "difference", 0.0)
        ),
    ],
    "checkpoints/loading_memory": [
        Mutation("        dist.broadcast(tensor, src=0)\n", "        pass\n", Note(1, "loaded_tensors", True, False)),
    ],
    "checkpoints/rank0_loads_and_broadcasts": [
        Mutation("model.state_dict().values()", "list(model.parameters())", Note(0, "broadcasts", 9, 6)),
        Mutation("src=0", "src=1", Note(0, "difference_after", 0.0)),
    ],
    "checkpoints/rank0_saves_all_load": [
        Mutation("trained.state_dict()", "make_model().state_dict()", Note(0, "difference_after", 0.0)),
    ],
    "checkpoints/reshard": [
        Mutation("    dcp.load(", "    dict(", Note(0, "by_all_again_difference", 0.0)),
    ],
    "ddp/story": [
        Mutation("bucket_cap_mb=1)", "bucket_cap_mb=100)", Calls(0, "broadcast int32[1] from 0 during forward")),
        Mutation("outputs = ddp(", "outputs = model(", Calls(0, "barrier")),
        Mutation("    dist.barrier()", "    torch.zeros(1)", Calls(0, "nothing")),
    ],
    "checkpoints/resume": [
        Mutation(
            'if forget != "optimizer":', "if forget is None and False:", Note(0, "resumed_is_identical", True, False)
        ),
    ],
}
ROWS = [pytest.param(name, row, id=f"{name}-{i}") for name, rows in MUTATIONS.items() for i, row in enumerate(rows)]


def test_every_lesson_has_a_mistake_that_shows_in_what_it_states() -> None:
    covered = {name for name, rows in MUTATIONS.items() if any(isinstance(row.must, Note | Calls) for row in rows)}
    lessons = {str(path.relative_to(FOLDER).with_suffix("")) for path in find_scenarios([FOLDER])}
    assert {name for name in lessons if name.split("/")[0] in FOLDERS} - covered == set(), "add a row for each of these"
    assert set(MUTATIONS) <= lessons


@pytest.mark.long
@pytest.mark.parametrize("engine", ["local"], indirect=True)
@pytest.mark.parametrize(("name", "mutation"), ROWS)
def test_a_mistake_does_not_pass(name: str, mutation: Mutation, cluster: Cluster, tmp_path: Path) -> None:
    lesson = tmp_path / "mutated" / Path(name).name
    shutil.copytree((FOLDER / name).parent, lesson.parent, ignore=shutil.ignore_patterns(".lab", "__pycache__"))
    script = lesson.with_suffix(".py")
    text = script.read_text(encoding="utf-8")
    assert text.count(mutation.old) == mutation.times, f"{script.name} has changed: {mutation.old!r}"
    script.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")

    scenario = replace(load_scenario(lesson.with_suffix(".yaml")), env=ONE_THREAD)
    timeout_s = HANGS_AFTER_S if isinstance(mutation.must, Hangs) else None
    result = cluster.run(scenario, runs=tmp_path / "runs", timeout_s=timeout_s)

    _assert_outcome(result, mutation.must)


def _assert_outcome(result: Result, must: Note | Calls | Check | Raises | Hangs) -> None:
    assert result.verdict == ("hung" if isinstance(must, Hangs) else "failed"), result.reason
    if isinstance(must, Note):
        unmet = _unmet(result, must.rank, f"note {must.name}")
        assert unmet.expected == must.expected
        assert must.got is _ANYTHING_ELSE or unmet.got == must.got
        says = f"rank {must.rank}: note {must.name}: expected {unmet.expected!r}, got {unmet.got!r}"
        assert result.reason.startswith(says), result.reason
    else:
        assert must.says in result.reason
    if isinstance(must, Calls):
        assert result.reason.startswith(f"rank {must.rank}: calls: "), result.reason
    if isinstance(must, Check):
        assert must.says in _unmet(result, None, "check").got
    if isinstance(must, Raises):
        assert result.culprit is not None
        assert result.reason.startswith(f"rank {result.culprit.rank} "), result.reason


def _unmet(result: Result, rank: int | None, what: str) -> Expectation:
    unmet = [item for item in result.expectations if not item.met and item.rank == rank]
    found = [item for item in unmet if item.what == what or (what == "check" and item.what.startswith("check "))]
    assert len(found) == 1, result.reason
    return found[0]
