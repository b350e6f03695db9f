"""Times the slurm engine against the local one, and against Slurm's own srun, in one run.

    python bench/slurm.py --repeats 5

`lab run` of a scatter on warm clusters of three nodes, and `lab up` of three nodes against `srun -N3 python -c "import
torch"`. Needs a Slurm, such as `dev/slurm up` starts, and torch.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import uuid
from collections.abc import Callable

from bench import LAB, SCENARIO, Row, command, measure, table

NODES = "3"


def up() -> Callable[[], float]:
    """`lab up`; its removal is not timed."""

    def action() -> float:
        name = f"bench-{uuid.uuid4().hex[:6]}"
        own = ["--engine", "slurm", "--name", name]
        try:
            return command(*LAB, "up", "--quiet", "--nodes", NODES, *own)()
        finally:
            command(*LAB, "down", *own)()

    return action


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="counted runs of each (default: 5)")
    repeats = parser.parse_args().repeats
    warm = {engine: ["--engine", engine, "--name", f"bench-{uuid.uuid4().hex[:6]}"] for engine in ("slurm", "local")}
    with tempfile.TemporaryDirectory() as runs:
        try:
            rows = []
            for engine, own in warm.items():
                command(*LAB, "up", "--quiet", "--nodes", NODES, *own)()
                run = command(*LAB, "run", SCENARIO, "--quiet", "--runs", runs, *own)
                rows.append(Row(f"lab run, {engine}", run, (1.5, "lab run, local") if engine == "slurm" else None))
            measure(rows, repeats)
        finally:
            for own in warm.values():
                command(*LAB, "down", *own)()
    srun = command("srun", f"-N{NODES}", sys.executable, "-c", "import torch")
    starts = [Row("lab up, slurm", up(), (1.3, "srun import torch")), Row("srun import torch", srun)]
    measure(starts, repeats)
    print(table([*rows, *starts], {}))


if __name__ == "__main__":
    main()
