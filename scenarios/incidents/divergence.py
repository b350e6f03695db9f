"""One batch of one rank is broken: its gradient is no number, and after the next all_reduce nobody's is."""

import math

import torch
import torch.distributed as dist
from training import Training

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

STEPS, ROWS = 12, 16


def batch_of(rank, step):
    inputs = torch.randn(ROWS, 32, generator=torch.Generator().manual_seed(100 * step + rank))
    if (rank, step) == (1, 6):
        inputs = (inputs - inputs[0]) / (inputs[0] - inputs[0])  # normalised by a spread of zero
    return inputs


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    training, finite = Training(), 0
    for step in range(STEPS):
        loss = training.step(batch_of(rank, step), torch.zeros(ROWS, 1))
        finite += math.isfinite(loss)
        print(f"rank {rank} step {step}: loss {loss:.3f}", flush=True)
    note("steps_with_a_finite_loss", finite)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
