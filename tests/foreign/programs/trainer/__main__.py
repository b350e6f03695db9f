"""`python -m trainer`."""

import argparse
import sys
from dataclasses import dataclass

import torch.distributed as dist

from . import fit


@dataclass(frozen=True)
class Options:
    width: int
    seed: int


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="trainer")
    parser.add_argument("--epochs", type=int, default=1)
    epochs = parser.parse_args().epochs
    dist.init_process_group("gloo")
    for epoch in range(epochs):
        fit(Options)
        print(f"rank {dist.get_rank()} epoch {epoch} of {__package__}, {sys.argv[1:]}", flush=True)
    dist.destroy_process_group()
