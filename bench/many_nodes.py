"""What a cluster of many nodes costs: to make, at rest, and for an all_reduce over all of its ranks.

    python bench/many_nodes.py --engine docker --nodes 3 64 --repeats 3
    LAB_DOCKER_ZYGOTE=never python bench/many_nodes.py --nodes 3      each node imports torch itself

Memory is what the engine says that a node uses, and what the machine has less while the cluster is at rest, divided by
the nodes: that counts what they share, and what the engine itself needs for them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LAB = [sys.executable, "-m", "lab.cli.main"]
DEADLINE_S = 900
_SCRIPT = """
import torch, torch.distributed as dist
from lab import note
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
note("total", total.item())
dist.destroy_process_group()
"""


def lab(*words: str) -> float:
    """Call the command line, which has to succeed; returns how long it took."""
    began = time.perf_counter()
    done = subprocess.run([*LAB, *words], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode:
        sys.exit(f"bench: lab {' '.join(words)} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - began


def available_bytes() -> int:
    """What the machine has left."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def measure(engine: str, nodes: int, folder: Path) -> dict[str, float]:
    """Make a cluster, look at it, run on it, remove it."""
    from lab import Cluster

    name, before = f"bench-{uuid.uuid4().hex[:6]}", available_bytes()
    of_this = ("--engine", engine, "--name", name)
    try:
        found: dict[str, float] = {"up_s": lab("up", "--quiet", "--nodes", str(nodes), *of_this)}
        cluster = Cluster(name=name, engine=engine)  # type: ignore[arg-type]
        info = cluster.info()
        assert info is not None
        used = [cluster.engine.memory_bytes(node) or 0 for node in info.nodes]
        found |= {"node_bytes": statistics.mean(used), "machine_bytes": (before - available_bytes()) / nodes}
        script = folder / "total.py"
        script.write_text(_SCRIPT)
        began = time.perf_counter()
        result = cluster.run(script, runs=folder / "runs")
        found["all_reduce_s"] = time.perf_counter() - began
        totals: list[Any] = [rank.notes.get("total") for rank in result.ranks]
        if not result.passed or totals != [sum(range(nodes))] * nodes:
            sys.exit(f"bench: the all_reduce over {nodes} ranks is wrong: {result.reason}")
    finally:
        found["down_s"] = lab("down", *of_this)
    return found


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--engine", choices=("docker", "local"), default="docker")
    parser.add_argument("--nodes", type=int, nargs="+", default=[3, 64])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    measured: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for nodes in arguments.nodes:
            turns = [measure(arguments.engine, nodes, Path(folder)) for _ in range(arguments.repeats)]
            measured[nodes] = {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
    if arguments.json:
        print(json.dumps(measured))
        return
    for nodes, found in measured.items():
        print(
            f"{nodes} nodes: up {found['up_s']:.2f} s ({found['up_s'] / nodes:.3f} a node), "
            f"at rest {found['node_bytes'] / 1e6:.1f} MB a node ({found['machine_bytes'] / 1e6:.1f} of the machine's), "
            f"all_reduce {found['all_reduce_s']:.2f} s, down {found['down_s']:.2f} s"
        )


if __name__ == "__main__":
    main()
