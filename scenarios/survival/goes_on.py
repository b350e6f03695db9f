"""DDP training with a checkpoint after each step. Workers that are started anew go on where those before them were.

It is done after twelve steps, and not before the last three of them were taken by as many ranks as are wanted.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from training import STEPS, Training, shared_folder, undisturbed_loss

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    checkpoint = shared_folder() / "checkpoint.pt"
    training = Training()
    if checkpoint.exists():
        training.resume(checkpoint)
    dist.barrier()  # all have read it
    note("resumed_at", training.next)
    print(f"rank {rank} of {world_size} goes on at step {training.next}", flush=True)

    model, wanted = training.wrapped(), int(sys.argv[1])
    least = max(STEPS, training.next + 3)
    while training.next < least or world_size != wanted:
        training.step(model, rank, world_size)
        if rank == 0:  # whole or not at all
            torch.save(training.state(), checkpoint.with_suffix(".new"))
            os.replace(checkpoint.with_suffix(".new"), checkpoint)
        dist.barrier()  # nobody goes on before it is there
        note("trained", training.next)
        if world_size != wanted:
            time.sleep(0.05)
    note("world_size", world_size)
    note("loss_off_by", abs(training.loss - undisturbed_loss(training.next)))

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
