"""Training that saves a checkpoint after every third step: rank 0 writes it, and the others wait until it is there.

Nothing in here is wrong. What goes wrong comes from outside: the `faults:` of the scenarios that run it.
"""

import io
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from training import Training

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

STEPS, ROWS, EVERY = 12, 16, 3


def save(model, path):
    """Whole or not at all."""
    data = io.BytesIO()
    torch.save(model.state_dict(), data)
    with open(path.with_suffix(".new"), "wb") as file:
        file.write(data.getvalue())
        os.fsync(file.fileno())
    os.replace(path.with_suffix(".new"), path)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    root = os.environ.get("LAB_SHARED", "/shared")
    checkpoint = Path(root if os.path.isdir(root) else tempfile.gettempdir(), f"{os.environ['TORCHELASTIC_RUN_ID']}.pt")
    training, rows = Training(), torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        inputs = torch.randn(ROWS, 32, generator=rows)
        training.step(inputs, inputs[:, :4].sum(1, keepdim=True))
        note("step", step)
        if step % EVERY == EVERY - 1:
            if rank == 0:
                save(training.model, checkpoint)
                print(f"saved after step {step}", flush=True)
            dist.barrier()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
