"""Training as it is every day: a small model in DistributedDataParallel, one step after the other.

Nothing in here is wrong. What goes wrong comes from outside: the `faults:` of the scenarios that run it.
"""

import argparse
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

ROWS = 16  # of one rank in a step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--width", type=int, default=64, help="of the hidden layer: how much is sent")
    parser.add_argument("--patience", type=float, default=1800.0, help="seconds after which gloo gives a call up")
    told = parser.parse_args()

    dist.init_process_group("gloo", timeout=timedelta(seconds=told.patience))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, told.width), nn.Tanh(), nn.Linear(told.width, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    rows = torch.Generator().manual_seed(rank)

    for step in range(told.steps):
        inputs = torch.randn(ROWS, 32, generator=rows)
        loss = nn.functional.mse_loss(model(inputs), inputs[:, :4].sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        note("step", step)
        if rank == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
