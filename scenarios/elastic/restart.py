"""A rank raises in mid-training; torchrun starts all ranks again, and they go on from the checkpoint.

Each process finds the checkpoint of the step before the failure. The same number of ranks trains on the same rows in
the same order, so that what comes out is what an undisturbed run gives, to the last bit.
"""

import os

import torch
import torch.distributed as dist
from steps import Training, checkpoint_path, train

try:
    from lab import note
except ImportError:
    note = print

STEPS, BAD_STEP = 10, 6


def main():
    dist.init_process_group("gloo")
    rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])

    def before(step):
        if (attempt, rank, step) == (0, 1, BAD_STEP):
            raise RuntimeError("a cosmic ray")

    training, path = Training(), checkpoint_path()
    training.resume(path)
    note("resumed_at", training.next)
    print(f"attempt {attempt}: rank {rank} goes on at step {training.next}", flush=True)
    loss = train(training, lambda step: step == STEPS, path, before)

    undisturbed = Training()
    loss_undisturbed = train(undisturbed, lambda step: step == STEPS)
    note("same_loss", loss == loss_undisturbed)
    note("same_weights", torch.equal(training.weights(), undisturbed.weights()))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
