"""Training as it is every day: one step after the other.

Nothing in here is wrong. What goes wrong comes from outside: the `faults:` of the scenarios that run it.
"""

import argparse
from datetime import timedelta

import torch
import torch.distributed as dist
from training import Training

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

ROWS = 16  # of one rank in a step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--width", type=int, default=64, help="of the hidden layer: how much is computed and sent")
    parser.add_argument(
        "--patience", type=float, default=1800.0, help="seconds after which gloo gives an all_reduce up"
    )
    told = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dist.barrier()
    training = Training(told.width, dist.new_group(timeout=timedelta(seconds=told.patience)))
    rows = torch.Generator().manual_seed(rank)
    for step in range(told.steps):
        inputs = torch.randn(ROWS, 32, generator=rows)
        loss = training.step(inputs, inputs[:, :4].sum(1, keepdim=True))
        note("step", step)
        if rank == 0:
            print(f"step {step}: loss {loss:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
