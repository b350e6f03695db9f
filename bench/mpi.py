"""Times mpirun in the lab against `mpiexec` on this machine, and MPI against gloo between nodes, in one run.

    python bench/mpi.py              a start of 3 ranks; an all_reduce of 4 KB between 3 nodes
    python bench/mpi.py --json       the same as data

The cluster is warm and on Docker (`--engine local`: without it).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import sysconfig
import tempfile
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import LAB, ROOT, Row, command, measure, table

SCRIPT = Path(__file__).resolve().parent / "all_reduce.py"
NODES, CALLS = 3, 500


def bench(engine: str, repeats: int, folder: Path) -> Sequence[Row]:
    """Starts, then calls."""
    from dataclasses import replace

    from lab import Cluster
    from lab.spec.load import scenario_from_script

    name, runs = f"bench-{uuid.uuid4().hex[:6]}", folder / "runs"
    scenario = scenario_from_script(SCRIPT)
    mpiexec = Path(sysconfig.get_path("scripts"), "mpiexec")
    with Cluster(nodes=NODES, name=name, engine=engine) as cluster:  # type: ignore[arg-type]

        def call_s(backend: str) -> Callable[[], float]:
            def measured() -> float:
                asked = replace(scenario, backend=backend, args=(backend, str(CALLS)))
                result = cluster.run(asked, runs=runs, trace=False)
                assert result.passed, result.reason
                return float(re.findall(r"^each ([\d.e-]+)$", result.ranks[0].log, re.MULTILINE)[0])

            return measured

        run = [*LAB, "run", SCRIPT, "--launcher", "mpirun", "--quiet", "--engine", engine, "--runs", runs]
        starts = [
            Row("lab run --launcher mpirun", command(*run, "--name", name, "--", "mpi", "0"), (1.5, "mpiexec -n 3")),
            Row("mpiexec -n 3", command(mpiexec, "-n", str(NODES), sys.executable, SCRIPT, "mpi", "0")),
        ]
        measure(starts, repeats)
        calls = [
            Row("all_reduce 4 KB, mpi", call_s("mpi"), (0.4, "all_reduce 4 KB, gloo")),
            Row("all_reduce 4 KB, gloo", call_s("gloo")),
        ]
        measure(calls, repeats)
    return [*starts, *calls]


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="counted runs of each (default: 5)")
    parser.add_argument("--engine", choices=("docker", "local"), default="docker", help="of the lab's cluster")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    os.environ["OMP_NUM_THREADS"] = "1"  # as the lab has it
    with tempfile.TemporaryDirectory() as folder:
        rows = [*bench(arguments.engine, arguments.repeats, Path(folder))]
    print(json.dumps({row.name: row.seconds for row in rows}) if arguments.json else table(rows, {}))


if __name__ == "__main__":
    main()
