"""How long an all_reduce takes over MPI and over gloo, on this machine: python mpi/bench.py [RANKS]

Starts the ranks with mpiexec, once for both: medians of rounds that take turns, so that both have the same company.
Prints a table, or with --json the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES = {"4 KB": (4 << 10, 400), "4 MB": (4 << 20, 20)}
"""Name -> bytes, and how many calls are timed together."""
BARS = {"4 KB": 0.10, "4 MB": 0.35}
ROUNDS = 21


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ranks", nargs="?", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        measure(arguments.rank)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        mpiexec = Path(sys.executable).with_name("mpiexec")
        command = [str(mpiexec) if mpiexec.exists() else "mpiexec", "-n", str(arguments.ranks)]
        command += [sys.executable, __file__, "--rank", folder]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, timeout=500, check=False)
        if done.returncode:
            return done.returncode
        found = json.loads(Path(folder, "found").read_text())
    if arguments.json:
        print(json.dumps(found))
        return 0
    print(f"all_reduce, {arguments.ranks} ranks on one machine, median of {ROUNDS} rounds")
    for name, times in found.items():
        ratio = times["mpi"] / times["gloo"]
        print(f"  {name}: MPI {times['mpi']:,.0f} us, gloo {times['gloo']:,.0f} us: {ratio:.3f} x (bar {BARS[name]})")
    return 0


def measure(folder: str) -> None:
    """What each rank does. gloo comes first: PyTorch makes no second backend beside MPI's without a store."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("mpi")
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=size)
    groups = {"gloo": dist.group.WORLD, "mpi": dist.new_group(backend="mpi")}
    found: dict[str, dict[str, float]] = {}
    for name, (size_bytes, calls) in SIZES.items():
        tensor = torch.ones(size_bytes // 4)
        times: dict[str, list[float]] = {backend: [] for backend in groups}
        for _ in range(ROUNDS):
            for backend, group in groups.items():
                for _ in range(5):
                    dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)
                began = time.perf_counter()
                for _ in range(calls):
                    dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)
                times[backend].append((time.perf_counter() - began) / calls * 1e6)
        found[name] = {backend: statistics.median(taken) for backend, taken in times.items()}
    if rank == 0:
        Path(folder, "found").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
