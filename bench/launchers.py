"""Times torchrun in the lab against three torchrun agents on this machine, in one run.

    python bench/launchers.py              a scatter of 3 ranks, and how soon work goes on after a rank was killed
    python bench/launchers.py --only recovery --engine local --json

The cluster is warm and on Docker (`--engine local`: without it). What begins anew is timed from the moment at which a
rank is killed to the first step of the next attempt that any rank has done, by the clock of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from bench import DEADLINE_S, LAB, ROOT, SCRIPT, Row, command, measure, table

RESTARTED = Path(__file__).resolve().parent / "restarted.py"
NODES = 3
_TOLD = {"killed": re.compile(r"killed ([\d.]+)"), "first step": re.compile(r"first step ([\d.]+)")}


def agents(script: Path, *options: str) -> str:
    """Run a script under three torchrun agents; what all of them printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(NODES), "--nproc-per-node", "1"]
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", uuid.uuid4().hex]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    env |= {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen(
            [*torchrun, *meeting, "--local-addr", "127.0.0.1", *options, str(script)],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(NODES)
    ]
    said = [process.communicate(timeout=DEADLINE_S)[0] for process in started]
    if any(process.returncode for process in started):
        sys.exit(f"bench: an agent failed:\n{said}")
    return "".join(said)


def recovery_s(said: str) -> float:
    """Seconds from the end of a rank to the first step after it."""
    moments = {what: min(map(float, found.findall(said))) for what, found in _TOLD.items()}
    return moments["first step"] - moments["killed"]


def bench(engine: str, repeats: int, folder: Path, only: str | None) -> Sequence[Row]:
    """Starts, then recoveries."""
    from lab import Cluster
    from lab.features.launchers.launchers import Torchrun
    from lab.spec.launching import Launching
    from lab.spec.load import scenario_from_script
    from lab.spec.scenario import Scenario

    name, runs = f"bench-{uuid.uuid4().hex[:6]}", folder / "runs"
    restarting = Launching("torchrun", Torchrun(max_restarts=1))
    plain = scenario_from_script(RESTARTED)
    scenario = Scenario(name="restarted", script=plain.script, launcher=restarting)
    with Cluster(nodes=NODES, name=name, engine=engine) as cluster:  # type: ignore[arg-type]

        def recovers() -> float:
            result = cluster.run(scenario, runs=runs)
            assert result.passed, result.reason
            before = result.attempts[0].result
            return recovery_s("".join(rank.log for rank in (*before.ranks, *result.ranks)))

        def bare() -> float:
            began = time.perf_counter()
            agents(SCRIPT)
            return time.perf_counter() - began

        run = [*LAB, "run", SCRIPT, "--launcher", "torchrun", "--quiet", "--engine", engine, "--runs", runs]
        starts = [
            Row("lab run --launcher torchrun", command(*run, "--name", name), (0.5, "three torchrun agents")),
            Row("three torchrun agents", bare),
        ]
        again = [
            Row("lab, after a killed rank", recovers, (1.0, "agents, after a killed rank")),
            Row("agents, after a killed rank", lambda: recovery_s(agents(RESTARTED, "--max-restarts", "1"))),
        ]
        parts = {"start": starts, "recovery": again}
        wanted = [rows for name, rows in parts.items() if only in (None, name)]
        for rows in wanted:
            measure(rows, repeats)
    return [row for rows in wanted for row in rows]


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="counted runs of each (default: 5)")
    parser.add_argument("--only", choices=("start", "recovery"), help="measure only this part")
    parser.add_argument("--engine", choices=("docker", "local"), default="docker", help="of the lab's cluster")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as folder:
        rows = [*bench(arguments.engine, arguments.repeats, Path(folder), arguments.only)]
    print(json.dumps({row.name: row.seconds for row in rows}) if arguments.json else table(rows, {}))


if __name__ == "__main__":
    main()
