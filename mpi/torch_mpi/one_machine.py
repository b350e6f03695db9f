"""Large reductions between ranks of one machine: in memory that all of them see, each reduces a part.

MPI's own, which reads the memory of the other processes, takes several times as long where ranks are more than cores:
whoever waits there keeps a core from those that are waited for.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from torch_mpi.library import MPI
from torch_mpi.limits import Impatient, Limit
from torch_mpi.reductions import COMBINE, Reduction

LEAST_BYTES = 256 << 10
"""Smaller tensors are MPI's."""
_PIECE_BYTES = 1 << 20
"""So much of a tensor is reduced at a time."""
_HEAD_BYTES = 4096
_TYPES = (torch.float32, torch.float64, torch.int32, torch.int64)


class OneMachine:
    """Memory that all ranks of a group see; none where they are not on one machine, until it is needed first.

    Every rank has a segment of two halves, used in turn: what is written into one half is read by the others until all
    of them have come to the next piece, which has the other half.
    """

    def __init__(self, comm: MPI.Intracomm, limit: Limit) -> None:
        self._comm, self._limit = comm, limit
        self._window: MPI.Win | None = None
        self._asked = False
        self._heads: list[memoryview] = []
        """Of each rank: how often it has come to meet the others, and what it brings."""
        self._segments: list[torch.Tensor] = []
        self._half = 0
        """The half that the next piece takes."""
        self._moment = 0
        """How often all ranks have met."""

    def takes(self, data: torch.Tensor, how: Reduction) -> bool:
        """Whether such a tensor is reduced here: the same on every rank, if all of them call the same."""
        if self._comm.size < 2 or data.nbytes < LEAST_BYTES or data.dtype not in _TYPES or how.combine is None:
            return False
        if not self._asked:
            self._asked = True
            self._open()
        return self._window is not None

    def all_reduce(self, data: torch.Tensor, how: Reduction) -> None:
        """Reduce a plain tensor in place.

        Raises:
            ValueError: another rank brings a tensor of another size or type, or reduces it otherwise.
            TimeUp: not all ranks came in time; nothing can be reduced here any more.
        """
        assert how.combine is not None
        head = data.nbytes, _TYPES.index(data.dtype), list(COMBINE.values()).index(how.combine)
        mine = self._heads[self._comm.rank]
        mine[1], mine[2], mine[3] = head
        flat, width = data.view(-1), _PIECE_BYTES // data.element_size()
        for begin in range(0, flat.numel(), width):
            self._reduce_piece(flat[begin : begin + width], how.combine, head if begin == 0 else None)

    def close(self) -> None:
        """Give the memory back; all ranks of the group have to."""
        if self._window is not None:
            self._heads, self._segments = [], []
            self._window.Unlock_all()
            self._window.Free()
            self._window = None

    def _open(self) -> None:
        Impatient(self._comm, self._limit).Barrier()  # what follows has no limit
        here = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        alone = here.size == self._comm.size
        here.Free()
        if not alone:
            return
        window = MPI.Win.Allocate_shared(_HEAD_BYTES + 2 * _PIECE_BYTES, 1, comm=self._comm)
        window.Lock_all(MPI.MODE_NOCHECK)
        for rank in range(self._comm.size):
            memory = memoryview(window.Shared_query(rank)[0]).cast("B")  # type: ignore[arg-type]  # stubs of 3.12
            self._heads.append(memory[:_HEAD_BYTES].cast("q"))
            self._segments.append(torch.frombuffer(memory[_HEAD_BYTES:], dtype=torch.uint8))
        self._heads[self._comm.rank][0] = 0
        window.Sync()
        self._comm.Barrier()
        window.Sync()
        self._window = window

    def _reduce_piece(self, piece: torch.Tensor, combine: Callable[..., object], head: tuple[int, ...] | None) -> None:
        offset, rank, size = self._half * _PIECE_BYTES, self._comm.rank, self._comm.size
        self._half = 1 - self._half
        views = [segment[offset : offset + piece.nbytes].view(piece.dtype) for segment in self._segments]
        views[rank].copy_(piece)
        self._meet()
        for other, theirs in enumerate(self._heads) if head is not None else ():
            if (theirs[1], theirs[2], theirs[3]) != head:
                raise ValueError(f"rank {other} of the group brings {theirs[1]:,} bytes or another type or reduction")
        mine = slice(piece.numel() * rank // size, piece.numel() * (rank + 1) // size)
        total = views[0][mine]
        for view in views[1:]:
            combine(total, view[mine], out=total)
        self._meet()
        piece.copy_(views[0])

    def _meet(self) -> None:
        """Return when all ranks have come here, and see what they wrote before."""
        assert self._window is not None
        self._moment += 1
        self._window.Sync()
        self._heads[self._comm.rank][0] = self._moment
        for head in self._heads:
            self._limit.wait(lambda head=head: head[0] >= self._moment)  # type: ignore[misc]  # it is called at once
        self._window.Sync()
