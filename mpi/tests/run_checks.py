"""Runs checks on the ranks that MPI has started: python run_checks.py FOLDER MODULE ...

Each rank writes a file into the folder: a line for each check, with what was wrong. Warnings of torch are left out: it
calls some of what is checked here old.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
import warnings
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("mpi")
    rank, size = dist.get_rank(), dist.get_world_size()
    with Path(sys.argv[1], f"rank{rank}.jsonl").open("w", buffering=1) as file:
        for name in sys.argv[2:]:
            module = importlib.import_module(f"checks.{name}")
            for check in [value for key, value in vars(module).items() if key.startswith("check_")]:
                try:
                    check(rank, size)
                    wrong = ""
                except Exception:
                    wrong = traceback.format_exc()
                print(json.dumps({"check": f"{name}.{check.__name__}", "wrong": wrong}), file=file)
                dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
