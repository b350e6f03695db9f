"""Handles of calls: in order, with futures and time limits; and messages."""

from __future__ import annotations

import re
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close


def check_many_calls_in_order(rank: int, size: int) -> None:
    tensors = [torch.full((1000,), float(rank + number)) for number in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    last = torch.full((3,), float(rank))
    dist.all_reduce(last)  # waits for those before it
    for number, (tensor, work) in enumerate(zip(tensors, works, strict=True)):
        assert work.wait()
        assert work.is_completed()
        assert work.is_success()
        assert work.wait()
        assert work.exception() is None
        assert_close(tensor, torch.full((1000,), float(sum(range(size)) + size * number)))


def check_futures(rank: int, size: int) -> None:
    tensor = torch.full((10,), float(rank))
    future = dist.all_reduce(tensor, async_op=True).get_future()
    mean = future.then(lambda done: done.value()[0] / size).wait()
    assert_close(mean, torch.full((10,), sum(range(size)) / size))
    work = dist.all_reduce(torch.ones(2), async_op=True)
    work.wait()
    assert work.get_future().done()
    assert work.get_future().value()[0].tolist() == [size, size]

    def another(done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        (again,) = done.value()
        dist.all_reduce(again)  # a call out of the function that is called when a call is done
        return again

    nested = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(another).wait()
    assert nested.tolist() == [size**2] * 2


def check_time_limit_of_a_wait(rank: int, size: int) -> None:
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        said = refused(lambda: work.wait(timedelta(seconds=0.05)))
        assert re.search(r"all_reduce on rank 0 .* 0.05 s", said), said
        dist.send(torch.ones(1), 1, tag=7)
        work.wait()
    else:
        if rank == 1:
            dist.recv(torch.ones(1), 0, tag=7)
        dist.all_reduce(torch.ones(1))


def check_time_limit_of_a_group(rank: int, size: int) -> None:
    """Nobody but rank 0 calls anything in these groups."""
    calls = {
        "all_reduce": lambda group: dist.all_reduce(torch.ones(1), group=group),
        "broadcast": lambda group: dist.broadcast(torch.ones(1), 1, group=group, async_op=True).wait(),
        "all_gather": lambda group: dist.all_gather_object([None] * size, "a", group=group),
        "reduce_scatter": lambda group: as_ddp_waits(
            dist.reduce_scatter_tensor(torch.ones(1), torch.ones(size), group=group, async_op=True)
        ),
        "recv from 1": lambda group: dist.recv(torch.ones(1), 1, group=group),
        "recv from any rank": lambda group: dist.recv(torch.ones(1), group=group),
    }
    for name, call in calls.items():
        group = dist.new_group(timeout=timedelta(seconds=0.1))
        if rank == 0:
            said = refused(lambda call=call, group=group: call(group))
            assert re.search(rf"{name}.* on rank 0 .* timed out after 0.1 s", said), said
            if "recv" not in name:
                assert f"since {name}" in refused(lambda group=group: dist.barrier(group))
    large = dist.new_group(timeout=timedelta(seconds=0.1))
    if rank == 0:
        assert "timed out" in refused(lambda: dist.all_reduce(torch.ones(1 << 17), group=large))


def as_ddp_waits(work: dist.Work) -> None:
    work.get_future().wait()


def check_what_a_group_is_given_later(rank: int, size: int) -> None:
    group = dist.new_group()
    group.set_timeout(timedelta(seconds=0.1))
    if rank == 0:
        assert "timed out after 0.1 s" in refused(lambda: dist.barrier(group))


def check_training_that_is_not_waited_for(rank: int, size: int) -> None:
    """An error of a call that DDP waits for in C++ is raised by backward."""
    group = dist.new_group()
    model = DistributedDataParallel(torch.nn.Linear(2, 1), process_group=group)
    group.set_timeout(timedelta(seconds=0.1))
    loss = model(torch.ones(2)).sum()
    if rank == 0:
        assert "all_reduce on rank 0" in refused(loss.backward)


def check_uneven_batches(rank: int, size: int) -> None:
    """Under Join the C++ of DDP alone keeps the handle of a call, and asks it later."""
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    with Join([model], divide_by_initial_world_size=False):
        for _ in range(3 + rank):
            model.zero_grad()
            model(torch.ones(2)).sum().backward()
    assert model.module.weight.grad.tolist() == [[1.0, 1.0]]


def check_ring_of_messages(rank: int, size: int) -> None:
    after, before = (rank + 1) % size, (rank - 1) % size
    for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.complex64):
        sent, room = torch.full((1000,), rank, dtype=dtype), torch.empty(1000, dtype=dtype)
        works = [dist.isend(sent, after, tag=3), dist.irecv(room, before, tag=3)]
        for work in works:
            assert work is not None
            assert work.wait()
        assert_close(room, torch.full((1000,), before, dtype=dtype))
    large, room = torch.full((1 << 20,), float(rank)), torch.empty(1 << 20)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, large, after), dist.P2POp(dist.irecv, room, before)]):
        work.wait()
    assert_close(room, torch.full((1 << 20,), float(before)))


def check_messages_by_tag(rank: int, size: int) -> None:
    if rank == 0:
        for tag in (1, 2):
            dist.send(torch.tensor([float(tag)]), 1, tag=tag)
    elif rank == 1:
        second, first = torch.zeros(1), torch.zeros(1)
        late = dist.irecv(first, 0, tag=1)
        dist.recv(second, 0, tag=2)
        assert late is not None
        assert late.get_future().wait()[0].item() == 1.0
        assert (first.item(), second.item()) == (1.0, 2.0)


def check_any_source(rank: int, size: int) -> None:
    if rank:
        for _ in range(3):
            dist.send(torch.full((3,), float(rank)), 0)
    else:
        seen = []
        for _ in range(3 * (size - 1)):
            room = torch.empty(3, 2).t()[0]  # not in one piece
            seen.append(source := dist.recv(room))
            assert room.tolist() == [float(source)] * 3
        assert sorted(seen) == sorted(3 * [*range(1, size)])


def check_objects_as_messages(rank: int, size: int) -> None:
    if rank == 0:
        dist.send_object_list([{"a": 1}, "b"], dst=1)
    elif rank == 1:
        room = [None, None]
        dist.recv_object_list(room, src=0)
        assert room == [{"a": 1}, "b"]


def check_a_message_of_another_size(rank: int, size: int) -> None:
    for sent, room in ((2, 4), (4, 2)):
        if rank == 0:
            dist.send(torch.ones(sent), 1)
        elif rank == 1:
            said = refused(lambda room=room: dist.recv(torch.zeros(room), 0))
            assert "recv from 0 on rank 1" in said, said
            assert ("8 came from rank 0" if sent < room else "runcate") in said, said
    dist.barrier()


def check_time_limit_of_a_message(rank: int, size: int) -> None:
    if rank == 1:
        room = torch.zeros(1)
        work = dist.irecv(room, 0, tag=9)
        assert work is not None
        assert not work.is_completed()
        assert "timed out after 0.02 s" in refused(lambda: work.wait(timedelta(seconds=0.02)))
        dist.send(torch.ones(1), 0, tag=9)
        assert work.wait(timedelta(seconds=60))
        assert room.item() == 5.0
    elif rank == 0:
        dist.recv(torch.zeros(1), 1, tag=9)
        dist.send(torch.full((1,), 5.0), 1, tag=9)


def check_wrong_arguments_name_call_and_rank(rank: int, size: int) -> None:
    calls = {
        "all_reduce": lambda: dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BAND),
        "all_gather": lambda: dist.all_gather([torch.ones(2)], torch.ones(2)),
        "reduce_scatter_tensor": lambda: dist.group.WORLD.reduce_scatter_single(torch.ones(2), torch.ones(3)),
        "all_to_all_single": lambda: dist.all_to_all_single(torch.ones(size + 1), torch.ones(size + 1)),
        "broadcast": lambda: dist.broadcast(torch.ones(2, device="meta"), 0),
        "reduce": lambda: dist.reduce(torch.eye(2).to_sparse(), 0),
    }
    for name, call in calls.items():
        said = refused(call)
        assert f"mpi: {name} on rank {rank} of group" in said, said


def refused(call: object) -> str:
    """What a call says that does not do it."""
    try:
        call()  # type: ignore[operator]
    except (RuntimeError, ValueError, TypeError) as error:
        return str(error)
    raise AssertionError("nothing was raised")
