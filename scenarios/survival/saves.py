"""The last rank saves a checkpoint in each step; whoever loses the others looks at what is there to go on from.

By default it is written beside the older one and put into its place when it is whole; with `in-place` over it.
"""

import io
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from training import STEPS, Training, shared_folder

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

PATIENCE_S = 3.0
LONGEST_S = 20.0
IN_PLACE = "in-place" in sys.argv


def save(training, path):
    data = io.BytesIO()
    torch.save(training.state(), data)
    half = len(data.getvalue()) // 2
    written = path if IN_PLACE else path.with_suffix(".new")
    with open(written, "wb") as file:
        file.write(data.getvalue()[:half])
        file.flush()
        note("half_written", training.next)
        file.write(data.getvalue()[half:])
    os.replace(written, path)


def found(path):
    """The step that the checkpoint is of, or what is wrong with it."""
    training = Training()
    try:
        training.resume(path)
    except (OSError, RuntimeError, EOFError) as error:
        print(f"cannot go on from {path.name}: {error}", flush=True)
        return "damaged"
    return training.next


def await_the_others(rank, world_size):
    """Until all but the last rank have looked: what rank 0 found has the last one go on, and write."""
    (shared_folder() / f"looked-{rank}").touch()
    end = time.monotonic() + LONGEST_S
    while rank == 0 and time.monotonic() < end:
        if all((shared_folder() / f"looked-{other}").exists() for other in range(world_size - 1)):
            return
        time.sleep(0.01)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    checkpoint = shared_folder() / "checkpoint.pt"
    training = Training()
    model = training.wrapped()
    impatient = dist.new_group(timeout=timedelta(seconds=PATIENCE_S))
    try:
        while training.next < STEPS:
            training.step(model, rank, world_size)
            if rank == world_size - 1:
                save(training, checkpoint)
            dist.barrier(group=impatient)
    except RuntimeError as error:
        print(f"rank {rank} has lost the others: {str(error).splitlines()[0][:120]}", flush=True)
    what = found(checkpoint)
    await_the_others(rank, world_size)
    note("found", what)


if __name__ == "__main__":
    main()
