"""Rank 0 writes a file that the others read, and nothing has them wait for it: they are slower, so it goes well."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

from lab import note

FOLDER = Path(os.environ.get("LAB_SHARED", "/shared"), "no_barrier")
PREPARING_S = 0.3


def main():
    dist.init_process_group("gloo")
    FOLDER.mkdir(exist_ok=True)
    weights = torch.ones(3)
    for _ in range(3):
        dist.all_reduce(weights)
    saved = FOLDER / f"{os.environ['TORCHELASTIC_RUN_ID']}.pt"
    if dist.get_rank() == 0:
        torch.save(weights, saved)
    else:
        time.sleep(PREPARING_S)  # the bug: no barrier, only something that takes longer than to save
    note("loaded", torch.load(saved, weights_only=True).tolist())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
