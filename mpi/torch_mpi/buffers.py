"""Tensors as memory that MPI reads and writes: what lies in one piece as it is, anything else by a copy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from torch_mpi.library import MPI

Tensors = Sequence[torch.Tensor]


class Buffer(list[Any]):
    """Memory of a tensor, and what it holds, as mpi4py takes it; the memory stays as long as this does.

    The number of elements follows from the size of the memory: where mpi4py takes a number, it means the elements of
    one rank, and too large a number would have MPI write beyond the end.
    """

    def __init__(self, tensor: torch.Tensor, *what: Any) -> None:
        super().__init__((MPI.buffer.fromaddress(tensor.data_ptr(), tensor.nbytes), *what))
        self.tensor = tensor


def checked(tensor: torch.Tensor, *, sparse: bool = False) -> torch.Tensor:
    """The tensor, if its values lie in this machine's memory.

    Raises:
        ValueError: they do not, or the tensor is sparse where it may not be.
    """
    if tensor.device.type != "cpu":
        raise ValueError(f"takes tensors in the memory of the CPU, found one on {tensor.device}")
    if tensor.layout is not torch.strided and not (sparse and tensor.layout is torch.sparse_coo):
        raise ValueError(f"takes dense tensors, found one with layout {tensor.layout}")
    return tensor


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether memory holds the values one after the other, as they are."""
    return bool(tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg())


def to_read(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of it in one piece."""
    return tensor if is_plain(tensor) else tensor.resolve_conj().resolve_neg().contiguous()


def to_write(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or memory of its size whose values `put_back` copies into it."""
    return tensor if is_plain(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype)


def put_back(tensor: torch.Tensor, written: torch.Tensor) -> None:
    """Give the tensor the values that were written, unless they were written into it."""
    if written is not tensor:
        with torch.no_grad():
            tensor.copy_(written.view(tensor.shape))


def as_bytes(tensor: torch.Tensor) -> Buffer:
    """Memory of a plain tensor of whatever type, to be moved."""
    return Buffer(tensor, MPI.BYTE)


def as_parts(tensor: torch.Tensor, counts: Sequence[int]) -> Buffer:
    """The same, of which each rank has some bytes."""
    return Buffer(tensor, counts, MPI.BYTE)


def as_numbers(tensor: torch.Tensor, kind: MPI.Datatype) -> Buffer:
    """Memory of a plain tensor, to be reduced."""
    return Buffer(tensor, kind)


def joined(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """The bytes of tensors of whatever types and shapes, one after the other."""
    pieces = [to_read(tensor).reshape(-1).view(torch.uint8) for tensor in tensors]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def room_for(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Memory for the bytes of tensors, one after the other."""
    return torch.empty(sum(tensor.nbytes for tensor in tensors), dtype=torch.uint8)


def spread(data: torch.Tensor, tensors: Tensors) -> None:
    """Give each tensor its piece of such bytes."""
    with torch.no_grad():
        for tensor, piece in zip(tensors, data.split(sizes(tensors)), strict=True):
            if piece.storage_offset() % tensor.element_size():  # a view of another type has to begin where such may lie
                piece = piece.clone()
            tensor.copy_(piece.view(tensor.dtype).view(tensor.shape))


def sizes(tensors: Iterable[torch.Tensor]) -> list[int]:
    """Bytes of each."""
    return [tensor.nbytes for tensor in tensors]
