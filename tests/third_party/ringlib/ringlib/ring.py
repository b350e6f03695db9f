"""An all-reduce in which every rank talks to its neighbours only."""

from __future__ import annotations

import torch
import torch.distributed as dist


def neighbours(rank: int, world_size: int) -> tuple[int, int]:
    """The ranks to the left and to the right."""
    return (rank - 1) % world_size, (rank + 1) % world_size


def all_reduce(tensor: torch.Tensor) -> None:
    """Add up the tensors of all ranks, in place: the parts go round once to be added, and once to be told."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    left, right = neighbours(rank, world_size)
    parts = tensor.view(-1).tensor_split(world_size)
    for step in range(world_size - 1):
        given, taken = parts[(rank - step) % world_size], parts[(rank - step - 1) % world_size]
        taken += _exchange(given, taken, left, right)
    for step in range(world_size - 1):
        given, taken = parts[(rank - step + 1) % world_size], parts[(rank - step) % world_size]
        taken.copy_(_exchange(given, taken, left, right))


def _exchange(given: torch.Tensor, like: torch.Tensor, left: int, right: int) -> torch.Tensor:
    """Give one part to the right, while another one comes from the left."""
    came = torch.empty_like(like)
    sending = dist.isend(given.contiguous(), right)
    dist.recv(came, left)
    sending.wait()
    return came
