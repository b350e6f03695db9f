"""The ten tests of `gloo_torch.py` as functions on ranks of the lab."""

import torch
import torch.distributed as dist

import lab

on_ranks = lab.distributed(nodes=3)


@on_ranks
def test_broadcast_basics(rank, world_size):
    for root in range(world_size):
        tensor = torch.tensor([float(rank)])
        dist.broadcast(tensor, root)
        assert tensor == root


@on_ranks
def test_allreduce_basics(rank):
    for op, expected in ((dist.ReduceOp.SUM, 6), (dist.ReduceOp.PRODUCT, 6), (dist.ReduceOp.MAX, 3)):
        tensor = torch.tensor([rank + 1.0])
        dist.all_reduce(tensor, op)
        assert tensor == expected


@on_ranks
def test_allreduce_coalesced_basics(rank):
    tensors = [torch.full((3,), rank + float(i)) for i in range(3)]
    dist.all_reduce_coalesced(tensors)
    assert [tensor.tolist() for tensor in tensors] == [[3.0 + 3 * i] * 3 for i in range(3)]


@on_ranks
def test_sparse_allreduce_basics(rank, world_size):
    tensor = torch.sparse_coo_tensor([[rank]], [1.0], (world_size,))
    dist.all_reduce(tensor)
    assert tensor.to_dense().tolist() == [1.0] * world_size


@on_ranks
def test_reduce_basics(rank, world_size):
    for root in range(world_size):
        tensor = torch.tensor([rank + 1.0])
        dist.reduce(tensor, root)
        assert rank != root or tensor == 6


@on_ranks
def test_scatter_basics(rank, world_size):
    tensor = torch.tensor([-1.0])
    dist.scatter(tensor, [torch.tensor([float(i)]) for i in range(world_size)] if rank == 1 else None, src=1)
    assert tensor == rank


@on_ranks
def test_gather_basics(rank, world_size):
    parts = [torch.tensor([-1.0]) for _ in range(world_size)] if rank == 2 else None
    dist.gather(torch.tensor([float(rank)]), parts, dst=2)
    assert parts is None or parts == [0, 1, 2]


@on_ranks
def test_allgather_basics(rank, world_size):
    parts = [torch.tensor([-1.0]) for _ in range(world_size)]
    dist.all_gather(parts, torch.tensor([float(rank)]))
    assert parts == [0, 1, 2]


@on_ranks
def test_send_recv_all_to_all(rank, world_size):
    others = [i for i in range(world_size) if i != rank]
    came = {i: torch.tensor([-1.0]) for i in others}
    works = [dist.isend(torch.tensor([float(rank)]), i) for i in others] + [dist.irecv(came[i], i) for i in others]
    for work in works:
        work.wait()
    assert all(came[i] == i for i in others)


@on_ranks
def test_barrier_implies_wait(rank):
    tensors = [torch.full((100,), float(i + rank)) for i in range(10)]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    dist.barrier()
    assert [tensor[99] for tensor in tensors] == [3 * i + 3 for i in range(10)]
