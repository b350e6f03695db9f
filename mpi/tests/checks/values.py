"""Every collective gives the values that it should: of every type, shape, and layout in memory."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.testing import assert_close

INTEGERS = [
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e5m2]
COMPLEX = [torch.complex64, torch.complex128, torch.complex32]
ALL_TYPES = [*INTEGERS, *FLOATS, *COMPLEX, torch.bool]
REDUCE: dict[str, Callable[[Any, Any], Any]] = {
    "SUM": operator.add,
    "PRODUCT": operator.mul,
    "MIN": min,
    "MAX": max,
    "BAND": operator.and_,
    "BOR": operator.or_,
    "BXOR": operator.xor,
}


def numbers(rank: int, dtype: torch.dtype, count: int = 6) -> list[Any]:
    """What a rank gives: small numbers, which every type holds exactly, as do their sums and products."""
    plain = [(rank + place) % 3 + place % 2 for place in range(count)]
    if dtype is torch.bool:
        return [number > 1 for number in plain]
    return [complex(number, rank) for number in plain] if dtype.is_complex else plain


def tensor_of(values: list[Any], dtype: torch.dtype) -> torch.Tensor:
    if dtype is torch.complex32:  # has no constructor of its own on every machine
        return torch.tensor(values, dtype=torch.complex64).to(dtype)
    return torch.tensor(values, dtype=dtype)


def given(rank: int, dtype: torch.dtype = torch.float32, count: int = 6) -> torch.Tensor:
    return tensor_of(numbers(rank, dtype, count), dtype)


def same(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Equal in type, shape and bits."""
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), (found, wanted)
    assert found.tolist() == wanted.tolist(), (found, wanted)


def reductions() -> list[tuple[str, torch.dtype]]:
    """Every reduction of every type that has it."""
    sums = [(op, dtype) for op in ("SUM", "PRODUCT") for dtype in ALL_TYPES]
    order = [(op, dtype) for op in ("MIN", "MAX") for dtype in (*INTEGERS, *FLOATS, torch.bool)]
    return sums + order + [(op, dtype) for op in ("BAND", "BOR", "BXOR") for dtype in (*INTEGERS, torch.bool)]


def reduced(op: str, dtype: torch.dtype, size: int) -> torch.Tensor:
    columns = zip(*(numbers(rank, dtype) for rank in range(size)), strict=True)
    return tensor_of([functools.reduce(REDUCE[op], column) for column in columns], dtype)


def check_all_reduce(rank: int, size: int) -> None:
    for op, dtype in reductions():
        tensor = given(rank, dtype)
        if (op, dtype.is_complex) == ("PRODUCT", True):  # which torch itself refuses
            dist.group.WORLD.allreduce([tensor], op=dist.ReduceOp.PRODUCT).wait()
        else:
            dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
        same(tensor, reduced(op, dtype, size))


def check_reduce(rank: int, size: int) -> None:
    for root in range(size):
        for op, dtype in reductions():
            tensor = given(rank, dtype)
            dist.reduce(tensor, root, op=getattr(dist.ReduceOp, op))
            same(tensor, reduced(op, dtype, size) if rank == root else given(rank, dtype))


def check_average(rank: int, size: int) -> None:
    for dtype in (torch.float32, torch.float64, torch.complex64):
        tensor = torch.full((5,), rank, dtype=dtype)
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
        assert_close(tensor, torch.full((5,), sum(range(size)) / size, dtype=dtype))
    whole = torch.tensor([-3 * (rank + 1), 5])
    dist.all_reduce(whole, op=dist.ReduceOp.AVG)
    assert whole.tolist() == [int(-3 * sum(range(1, size + 1)) / size), 5]


def check_layouts(rank: int, size: int) -> None:
    """Tensors that do not lie in one piece, that are empty, that are single numbers, conjugated, or need gradients."""
    wide = torch.full((4, 6), float(rank))
    dist.all_reduce(wide[:, ::2])
    assert wide.tolist() == [[float(sum(range(size))), float(rank)] * 3] * 4
    turned = torch.full((3, 2), float(rank + 1)).t()
    dist.broadcast(turned, size - 1)
    same(turned, torch.full((2, 3), float(size)))
    outputs = [torch.zeros(3, 2).t() for _ in range(size)]
    dist.all_gather(outputs, torch.arange(6.0).view(3, 2).t() + rank)
    for source, output in enumerate(outputs):
        same(output, torch.arange(6.0).view(3, 2).t() + source)
    for empty in (torch.empty(0), torch.empty(3, 0)):
        dist.all_reduce(empty)
        dist.broadcast(empty, 0)
        dist.all_gather([torch.empty_like(empty) for _ in range(size)], empty)
    single = torch.tensor(float(rank))
    dist.all_reduce(single)
    same(single, torch.tensor(float(sum(range(size)))))
    conjugate = torch.tensor([complex(1, rank)]).conj()
    dist.group.WORLD.broadcast([conjugate], root=size - 1).wait()  # torch.distributed.broadcast itself refuses it
    assert conjugate.tolist() == [complex(1, 1 - size)]
    parameter = torch.nn.Parameter(torch.full((3,), float(rank))[:])
    dist.broadcast(parameter.data, 0)
    assert parameter.tolist() == [0.0] * 3


def check_broadcast(rank: int, size: int) -> None:
    for dtype in (*ALL_TYPES, torch.float8_e4m3fn):
        for root in range(size):
            tensor = given(rank, torch.float32).to(dtype) if dtype is torch.float8_e4m3fn else given(rank, dtype)
            dist.broadcast(tensor, root)
            same(tensor.float() if tensor.is_floating_point() else tensor,
                 given(root, torch.float32) if tensor.is_floating_point() else given(root, dtype))  # fmt: skip


def check_all_gather(rank: int, size: int) -> None:
    for dtype in ALL_TYPES:
        outputs = [torch.zeros(6, dtype=dtype) for _ in range(size)]
        dist.all_gather(outputs, given(rank, dtype))
        for source, output in enumerate(outputs):
            same(output, given(source, dtype))
    uneven = [torch.zeros(source + 1) for source in range(size)]
    dist.all_gather(uneven, torch.full((rank + 1,), float(rank)))
    for source, output in enumerate(uneven):
        same(output, torch.full((source + 1,), float(source)))


def check_all_gather_single(rank: int, size: int) -> None:
    gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
    for dtype in ALL_TYPES:
        output = torch.zeros(6 * size, dtype=dtype)
        gather(output, given(rank, dtype))
        same(output, torch.cat([given(source, dtype) for source in range(size)]))
    whole = torch.zeros(size, 4)
    whole[rank] = rank
    gather(whole, whole[rank])  # from its own place in the output
    same(whole, torch.arange(float(size))[:, None].expand(-1, 4))


def check_gather_and_scatter(rank: int, size: int) -> None:
    for root in range(size):
        outputs = [torch.zeros(6) for _ in range(size)] if rank == root else None
        dist.gather(given(rank), outputs, dst=root)
        for source, output in enumerate(outputs or ()):
            same(output, given(source))
        output = torch.zeros(4, dtype=torch.bfloat16)
        inputs = [torch.full((4,), 10.0 * root + place, dtype=torch.bfloat16) for place in range(size)]
        dist.scatter(output, inputs if rank == root else None, src=root)
        same(output, inputs[rank])


def check_reduce_scatter(rank: int, size: int) -> None:
    total = sum(range(size))
    for dtype in (torch.float32, torch.float16, torch.int64, torch.complex64):
        output = torch.zeros(4, dtype=dtype)
        dist.reduce_scatter(output, [torch.full((4,), rank + place, dtype=dtype) for place in range(size)])
        same(output, torch.full((4,), total + size * rank, dtype=dtype))
        whole = torch.cat([torch.full((4,), rank + place, dtype=dtype) for place in range(size)])
        single = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
        single(output.zero_(), whole)
        same(output, torch.full((4,), total + size * rank, dtype=dtype))
        mine = whole.view(size, 4)[rank]
        single(mine, whole)  # into its own place in the input
        same(mine, output)
    uneven = torch.zeros(rank + 1)
    dist.reduce_scatter(uneven, [torch.full((place + 1,), 1.0) for place in range(size)], op=dist.ReduceOp.AVG)
    same(uneven, torch.ones(rank + 1))


def check_all_to_all(rank: int, size: int) -> None:
    outputs = [torch.zeros(rank + 1, dtype=torch.int16) for _ in range(size)]
    inputs = [torch.full((place + 1,), 10 * rank + place, dtype=torch.int16) for place in range(size)]
    dist.all_to_all(outputs, inputs)
    for source, output in enumerate(outputs):
        same(output, torch.full((rank + 1,), 10 * source + rank, dtype=torch.int16))
    even = torch.zeros(2 * size, dtype=torch.bool)
    dist.all_to_all_single(even, torch.arange(2 * size) // 2 >= rank)
    same(even, torch.tensor([rank >= source for source in range(size) for _ in range(2)]))
    output = torch.zeros(size * (rank + 1), 2)
    given_rows = [place + 1 for place in range(size)]
    dist.all_to_all_single(output, torch.full((sum(given_rows), 2), float(rank)), [rank + 1] * size, given_rows)
    same(output, torch.arange(float(size)).repeat_interleave(rank + 1)[:, None].expand(-1, 2))


def check_coalesced(rank: int, size: int) -> None:
    world, total = dist.group.WORLD, float(sum(range(size)))
    tensors = [torch.full((3,), float(rank)), torch.full((2, 2), float(rank))]
    dist.all_reduce_coalesced(tensors)
    same(tensors[1], torch.full((2, 2), total))
    lists = [[torch.zeros(3), torch.zeros(2)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [torch.full((3,), float(rank)), torch.full((2,), rank + 0.5)])
    for source, (first, second) in enumerate(lists):
        same(first, torch.full((3,), float(source)))
        same(second, torch.full((2,), source + 0.5))
    outputs = [torch.zeros(size), torch.zeros(2 * size)]
    world.all_gather_single_coalesced(outputs, [torch.full((1,), float(rank)), torch.full((2,), float(rank))]).wait()
    same(outputs[1], torch.arange(float(size)).repeat_interleave(2))
    pieces = [torch.zeros(1), torch.zeros(2)]
    world.reduce_scatter_single_coalesced(pieces, [torch.ones(size), torch.ones(2 * size)]).wait()
    same(pieces[1], torch.full((2,), float(size)))
    with dist.distributed_c10d._coalescing_manager():
        for tensor in (ones := [torch.ones(2), torch.ones(3)]):
            dist.all_reduce(tensor)
    same(ones[1], torch.full((3,), float(size)))


def check_sparse(rank: int, size: int) -> None:
    tensor = torch.sparse_coo_tensor([[rank, size]], [1.0, float(rank)], (size + 1,))
    dist.all_reduce(tensor)
    same(tensor.to_dense(), torch.tensor([1.0] * size + [float(sum(range(size)))]))


def check_objects(rank: int, size: int) -> None:
    everybody: list[Any] = [None] * size
    dist.all_gather_object(everybody, {"rank": rank, "text": "x" * rank * 1000})
    assert [one["rank"] for one in everybody] == list(range(size))
    told = [("from", rank)]
    dist.broadcast_object_list(told, src=size - 1)
    assert told == [("from", size - 1)]
    gathered: list[Any] | None = [None] * size if rank == 0 else None
    dist.gather_object("a" * (rank + 1), gathered, dst=0)
    assert gathered is None or [len(text) for text in gathered] == list(range(1, size + 1))
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, list(range(size)) if rank == 0 else [None] * size, src=0)
    assert mine == [rank]


def check_older_signatures(rank: int, size: int) -> None:
    """Those of a process group itself, which take one tensor, and root and reduction one by one."""
    world, total = dist.group.WORLD, float(sum(range(size)))
    tensor = torch.full((2,), float(rank))
    world.allreduce(tensor).wait()
    same(tensor, torch.full((2,), total))
    world.allreduce([tensor], op=dist.ReduceOp.MAX).wait()
    world.broadcast(tensor, root=0).wait()
    world.reduce(torch.ones(2), root=0).wait()
    world.allgather([torch.zeros(2) for _ in range(size)], tensor).wait()
    world.gather([torch.zeros(2) for _ in range(size)] if rank == 1 else [], tensor, root=1).wait()
    output = torch.zeros(2)
    world.scatter(output, [torch.full((2,), float(place)) for place in range(size)] if rank == 0 else [], root=0).wait()
    same(output, torch.full((2,), float(rank)))
    world.reduce_scatter(output, [torch.ones(2) for _ in range(size)]).wait()
    same(output, torch.full((2,), float(size)))
    world.barrier().wait()


def check_functional(rank: int, size: int) -> None:
    import torch.distributed._functional_collectives as functional

    world = dist.group.WORLD
    same(
        functional.all_reduce(torch.full((4,), float(rank)), "sum", world).clone(),
        torch.full((4,), float(sum(range(size)))),
    )
    gathered = functional.all_gather_tensor(torch.full((2,), float(rank)), 0, world).clone()
    same(gathered, torch.arange(float(size)).repeat_interleave(2))
    whole = torch.cat([torch.full((4,), float(place)) for place in range(size)])
    same(functional.reduce_scatter_tensor(whole, "sum", 0, world).clone(), torch.full((4,), float(size * rank)))
    swapped = functional.all_to_all_single(torch.arange(float(size)) + 10 * rank, None, None, world).clone()
    same(swapped, torch.arange(float(size)) * 10 + rank)
    same(functional.broadcast(torch.full((4,), float(rank)), 0, world).clone(), torch.zeros(4))
