"""What clusters side by side save: the same lessons by `lab test -j 1` and `-j 2`, in turn, from nothing to nothing.

    python bench/side_by_side.py                         collectives, on containers
    python bench/side_by_side.py --engine local --lessons collectives broken --rounds 5
    python bench/side_by_side.py --json                  the same as data

A round runs one, the other, the other, the one, so that what else the machine does falls on both alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BAR = 1.0
"""Two clusters on two cores take no longer than one."""


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--engine", choices=("docker", "local"), default="docker")
    parser.add_argument("--lessons", nargs="+", default=["collectives"], metavar="FOLDER", help="folders of scenarios/")
    parser.add_argument("--jobs", type=int, default=2, help="clusters that are compared with one (default: 2)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    took_s: dict[int, list[float]] = {1: [], arguments.jobs: []}
    for _ in range(arguments.rounds):
        for jobs in (1, arguments.jobs, arguments.jobs, 1):
            took_s[jobs].append(_suite_s(arguments, jobs))
    one, several = (statistics.median(took_s[jobs]) for jobs in (1, arguments.jobs))
    if arguments.json:
        print(json.dumps({"seconds": took_s, "ratio": several / one, "bar": BAR}))
        return
    print(f"-j 1 {one:.1f} s, -j {arguments.jobs} {several:.1f} s: {several / one:.2f} (at most {BAR})")


def _suite_s(arguments: argparse.Namespace, jobs: int) -> float:
    """Seconds that one whole command takes."""
    folders = [str(ROOT / "scenarios" / folder) for folder in arguments.lessons]
    words = ["test", *folders, "-j", str(jobs), "--engine", arguments.engine, "--quiet"]
    with tempfile.TemporaryDirectory() as here:
        began = time.monotonic()
        ended = subprocess.run(
            [sys.executable, "-m", "lab.cli.main", *words], cwd=here, capture_output=True, text=True, check=False
        )
        took_s = time.monotonic() - began
    if ended.returncode:
        sys.exit(f"-j {jobs} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return took_s


if __name__ == "__main__":
    main()
