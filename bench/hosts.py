"""Time the slurm engine against the local engine, and against Slurm's own srun, in one run.

    python bench/hosts.py                       medians of 5
    python bench/hosts.py --repeats 9

`lab run` of a scatter on warm clusters of three nodes, and `lab up` of three nodes against `srun -N3 python -c "import
torch"`. Needs a Slurm, such as `dev/slurm up` starts, and torch.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path

from bench import LAB, SCENARIO, Row, command, measure, table

NODES = "3"
PEER = "local"
"""The engine that Slurm is compared with."""


def warm_runs(repeats: int, runs: Path) -> list[Row]:
    """`lab run` on a warm cluster of Slurm, and of its peer."""
    warm = {each: ["--engine", each, "--name", f"bench-{uuid.uuid4().hex[:6]}"] for each in ("slurm", PEER)}
    rows = []
    try:
        for each, own in warm.items():
            command(*LAB, "up", "--quiet", "--nodes", NODES, *own)()
            bar = (1.5, f"lab run, {PEER}") if each == "slurm" else None
            run = command(*LAB, "run", SCENARIO, "--quiet", "--runs", runs, *own)
            rows.append(Row(f"lab run, {each}", run, bar))
        measure(rows, repeats)
    finally:
        for own in warm.values():
            command(*LAB, "down", *own)()
    return rows


def starts(repeats: int) -> list[Row]:
    """`lab up` on Slurm, and what Slurm takes to import torch on as many machines."""
    srun = command("srun", f"-N{NODES}", sys.executable, "-c", "import torch")
    rows = [Row("lab up, slurm", up(), (1.3, "srun import torch")), Row("srun import torch", srun)]
    measure(rows, repeats)
    return rows


def up() -> Callable[[], float]:
    """`lab up`; its removal is not timed."""

    def action() -> float:
        own = ["--engine", "slurm", "--name", f"bench-{uuid.uuid4().hex[:6]}"]
        try:
            return command(*LAB, "up", "--quiet", "--nodes", NODES, *own)()
        finally:
            command(*LAB, "down", *own)()

    return action


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="counted runs of each (default: 5)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as runs:
        rows = warm_runs(arguments.repeats, Path(runs)) + starts(arguments.repeats)
    print(table(rows, {}))


if __name__ == "__main__":
    main()
