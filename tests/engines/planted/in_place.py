"""Training that goes on from a checkpoint, which is written part by part, as these come from the ranks.

It is written in place, which is the bug; with the argument `whole` it is there whole, or the older one is.
"""

import os
import pickle
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from lab import note

STEPS, PARTS = 4, 3
FOLDER = Path(os.environ.get("LAB_SHARED", "/shared"), "in_place")
CHECKPOINT = FOLDER / "checkpoint"
WRITTEN = FOLDER / ("new" if "whole" in sys.argv else "checkpoint")


def save(step, parts):
    file = open(WRITTEN, "wb") if dist.get_rank() == 0 else None
    if file is not None:
        pickle.dump(step, file)
    for part in parts:
        everybodys = [torch.empty_like(part) for _ in range(dist.get_world_size())] if file is not None else None
        dist.gather(part, everybodys, dst=0)
        if file is not None:
            pickle.dump([one.tolist() for one in everybodys], file)
    if file is not None:
        file.close()
        os.replace(WRITTEN, CHECKPOINT)
    dist.barrier()


def load():
    if not CHECKPOINT.exists():
        return 0, [torch.zeros(2) for _ in range(PARTS)]
    with open(CHECKPOINT, "rb") as file:
        step = pickle.load(file)
        parts = [pickle.load(file) for _ in range(PARTS)]
    return step, [torch.tensor(part[dist.get_rank()]) for part in parts]


def main():
    dist.init_process_group("gloo")
    FOLDER.mkdir(exist_ok=True)
    first, parts = load()
    dist.barrier()
    for step in range(first, STEPS):
        for number, part in enumerate(parts):
            gradient = torch.full_like(part, float(number + dist.get_rank()))
            dist.all_reduce(gradient)
            part += gradient
        save(step + 1, parts)
    note("parts", [part.tolist() for part in parts])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
