"""DDP over MPI: mpirun starts the ranks, and MPI carries the gradients.

No rank, size, address or port is named here: MPI knows its ranks. It runs as it is under `mpiexec -n 3`, and with gloo
under torchrun; DDP hands the same gradients to either, and the same weights come out.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

ROWS, STEPS = 60, 6


def own_rows(rank, world_size):
    """Every world_size-th row of the data: y = 3 x - 1."""
    x = torch.linspace(-1, 1, ROWS, dtype=torch.float64).unsqueeze(1)[rank::world_size]
    return x, 3 * x - 1


def train(model, x, y):
    """The loss of these rows before each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    losses = []
    for _ in range(STEPS):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()  # DDP has the backend average the gradients of all ranks here
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def main():
    dist.init_process_group()  # the backend is the scenario's
    rank, world_size = dist.get_rank(), dist.get_world_size()

    x, y = own_rows(rank, world_size)
    print(f"rank {rank} of {world_size}: {len(x)} rows, x = {x[0].item():.3f}, {x[1].item():.3f}, ...", flush=True)
    model = nn.Linear(1, 1, dtype=torch.float64)
    nn.init.constant_(model.weight, rank)  # another start on each rank: DDP gives all of them that of rank 0
    nn.init.zeros_(model.bias)
    losses = train(DistributedDataParallel(model), x, y)
    dist.all_reduce(losses)  # each rank knows the loss of its own rows
    losses /= world_size

    print(f"rank {rank}: weight {model.weight.item():.6f}, losses {losses.tolist()}", flush=True)
    note("backend", dist.get_backend())
    note("told_by_mpi", [int(os.environ.get("PMI_RANK", "-1")), int(os.environ.get("PMI_SIZE", "-1"))])
    note("rows", len(x))
    note("losses", losses)
    note("weight", model.weight.item())

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
