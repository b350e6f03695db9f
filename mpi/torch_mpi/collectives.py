"""Each collective, done at once and in this thread: torch's tensors in, MPI's call, torch's tensors out.

What is wrong with arguments is found by `group.py`, before a call is given to one of these.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torch_mpi.buffers import (
    Tensors,
    as_bytes,
    as_numbers,
    as_parts,
    joined,
    put_back,
    room_for,
    sizes,
    spread,
    to_read,
    to_write,
)
from torch_mpi.library import MPI
from torch_mpi.one_machine import OneMachine
from torch_mpi.reductions import Reduction, divide


def all_reduce(comm: MPI.Intracomm, tensor: torch.Tensor, how: Reduction, machine: OneMachine) -> None:
    """Reduce in place, on every rank."""
    data = _operand(tensor, how)
    if machine.takes(data, how):
        with torch.no_grad():
            machine.all_reduce(data, how)
    else:
        comm.Allreduce(MPI.IN_PLACE, as_numbers(data, how.type), how.op)
    _take_result(tensor, data, how, comm.size)


def reduce(comm: MPI.Intracomm, tensor: torch.Tensor, how: Reduction, root: int) -> None:
    """Reduce in place at the root; what the others gave stays as it was."""
    data = _operand(tensor, how)
    numbers = as_numbers(data, how.type)
    if comm.rank == root:
        comm.Reduce(MPI.IN_PLACE, numbers, how.op, root)
        _take_result(tensor, data, how, comm.size)
    else:
        comm.Reduce(numbers, None, how.op, root)


def broadcast(comm: MPI.Intracomm, tensor: torch.Tensor, root: int) -> None:
    """Give every rank the root's tensor."""
    data = to_read(tensor) if comm.rank == root else to_write(tensor)
    comm.Bcast(as_bytes(data), root)
    if comm.rank != root:
        put_back(tensor, data)


def all_gather(comm: MPI.Intracomm, outputs: Tensors, tensor: torch.Tensor) -> None:
    """Fill the list of every rank with the tensors of all; these may differ in size."""
    data, room, counts = to_read(tensor), room_for(outputs), sizes(outputs)
    if len(set(counts)) == 1:
        comm.Allgather(as_bytes(data), as_bytes(room))
    else:
        comm.Allgatherv(as_bytes(data), as_parts(room, counts))
    spread(room, outputs)


def all_gather_single(comm: MPI.Intracomm, output: torch.Tensor, tensor: torch.Tensor) -> None:
    """Fill one tensor with the tensors of all ranks, one after the other."""
    data, room = to_read(tensor), to_write(output)
    # FSDP2 gathers from its place in the output, and MPI allows no memory to be given twice.
    in_place = data.nbytes > 0 and data.data_ptr() == room.data_ptr() + comm.rank * data.nbytes
    comm.Allgather(MPI.IN_PLACE if in_place else as_bytes(data), as_bytes(room))
    put_back(output, room)


def gather(comm: MPI.Intracomm, outputs: Tensors, tensor: torch.Tensor, root: int) -> None:
    """Fill the root's list with the tensors of all ranks; these may differ in size."""
    data = as_bytes(to_read(tensor))
    if comm.rank != root:
        comm.Gatherv(data, None, root)
        return
    room = room_for(outputs)
    comm.Gatherv(data, as_parts(room, sizes(outputs)), root)
    spread(room, outputs)


def scatter(comm: MPI.Intracomm, output: torch.Tensor, inputs: Tensors, root: int) -> None:
    """Give each rank its tensor of the root's list; these may differ in size."""
    room = to_write(output)
    if comm.rank == root:
        comm.Scatterv(as_parts(joined(inputs), sizes(inputs)), as_bytes(room), root)
    else:
        comm.Scatterv(None, as_bytes(room), root)
    put_back(output, room)


def reduce_scatter(comm: MPI.Intracomm, output: torch.Tensor, inputs: Tensors, how: Reduction) -> None:
    """Reduce the i-th tensor of all lists for rank i; the tensors of a list may differ in size."""
    operands = torch.cat([_operand(tensor, how).reshape(-1) for tensor in inputs])
    data = _operand(output, how)
    data = data if data is not output else to_write(output)
    counts = [tensor.numel() for tensor in inputs]
    comm.Reduce_scatter(as_numbers(operands, how.type), as_numbers(data, how.type), counts, how.op)
    _take_result(output, data, how, comm.size)


def reduce_scatter_single(comm: MPI.Intracomm, output: torch.Tensor, tensor: torch.Tensor, how: Reduction) -> None:
    """Reduce a tensor, and give each rank its piece of the result."""
    operand, data = _operand(tensor, how), _operand(output, how)
    if operand.data_ptr() <= data.data_ptr() < operand.data_ptr() + operand.nbytes:
        data = torch.empty_like(
            data
        )  # FSDP reduces into its place in the input, and MPI allows no memory to be given twice
    comm.Reduce_scatter_block(as_numbers(operand, how.type), as_numbers(data, how.type), how.op)
    _take_result(output, data, how, comm.size)


def all_to_all(comm: MPI.Intracomm, outputs: Tensors, inputs: Tensors) -> None:
    """Give rank i the i-th tensor of the list; all may differ in size."""
    data, room = joined(inputs), room_for(outputs)
    comm.Alltoallv(as_parts(data, sizes(inputs)), as_parts(room, sizes(outputs)))
    spread(room, outputs)


def all_to_all_single(
    comm: MPI.Intracomm,
    output: torch.Tensor,
    tensor: torch.Tensor,
    rows_out: Sequence[int],
    rows_in: Sequence[int],
) -> None:
    """Give rank i the i-th piece of the tensor; `rows` are the lengths of pieces in the first dimension."""
    data, room = to_read(tensor), to_write(output)
    comm.Alltoallv(as_parts(data, _row_bytes(data, rows_in)), as_parts(room, _row_bytes(room, rows_out)))
    put_back(output, room)


def all_reduce_sparse(comm: MPI.Intracomm, tensor: torch.Tensor) -> None:
    """Sum sparse tensors in place: every rank gets the entries of all, and adds up those of one place."""
    mine = tensor.coalesce()
    indices, values = mine.indices(), mine.values()
    counts = torch.empty(comm.size, dtype=torch.int64)
    comm.Allgather(as_bytes(torch.tensor([indices.shape[1]])), as_bytes(counts))
    entries = counts.tolist()
    all_indices = [indices.new_empty((indices.shape[0], count)) for count in entries]
    all_values = [values.new_empty((count, *values.shape[1:])) for count in entries]
    all_gather(comm, all_indices, indices)
    all_gather(comm, all_values, values)
    total = torch.sparse_coo_tensor(torch.cat(all_indices, 1), torch.cat(all_values), tensor.shape).coalesce()
    with torch.no_grad():
        tensor.copy_(total)


def _operand(tensor: torch.Tensor, how: Reduction) -> torch.Tensor:
    """The tensor as MPI can reduce it: itself where that is possible."""
    return to_read(tensor if how.by_way_of is None else tensor.detach().to(how.by_way_of))


def _take_result(tensor: torch.Tensor, data: torch.Tensor, how: Reduction, ranks: int) -> None:
    if how.mean:
        with torch.no_grad():
            divide(data, ranks)
    put_back(tensor, data)


def _row_bytes(tensor: torch.Tensor, rows: Sequence[int]) -> list[int]:
    row = tensor.nbytes // tensor.shape[0] if tensor.shape[0] else 0
    return [count * row for count in rows]
