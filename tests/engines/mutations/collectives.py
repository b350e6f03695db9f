"""Mistakes in lessons of collectives."""

from __future__ import annotations

from collections.abc import Sequence

from tests.engines.mutations.kinds import Check, Mutation, Note, Raises

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
}
