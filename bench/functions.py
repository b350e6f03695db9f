"""Times the same thirty tests of three ranks by `@lab.distributed`, torch.multiprocessing and MultiProcContinuousTest.

    python bench/functions.py              whole pytest commands from cold, in turn, the least of 3
    python bench/functions.py --engine local --json

Each command imports torch, makes what it needs (the lab: three nodes), runs the tests of `bench/suites` and removes it.
MultiProcContinuousTest needs the package expecttest.
"""

from __future__ import annotations

import argparse
import json
import sys

from bench import ROOT, Row, command

SUITES = ROOT / "bench" / "suites"
BARS = {"spawn": 0.15, "continuous": 0.6}
"""Largest part of their time that the lab may take."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("docker", "local"), default="docker")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [suite(name, options.engine) for name in ("lab", "continuous", "spawn")]
    for turn in range(options.repeats):
        for row in rows if turn == 0 else rows[:2]:  # thirty times three new processes: once is enough of that
            row.seconds.append(row.action())
            print(f"{row.name:12} {row.seconds[-1]:7.2f} s", file=sys.stderr, flush=True)
    lab = min(rows[0].seconds)
    ratios = {row.name: round(lab / min(row.seconds), 3) for row in rows[1:]}
    if options.json:
        print(json.dumps({"seconds": {row.name: row.seconds for row in rows}, "ratios": ratios, "bars": BARS}))
    for name, ratio in {} if options.json else ratios.items():
        print(f"lab / {name}: {ratio} (bar {BARS[name]}){'' if ratio <= BARS[name] else '  MISSED'}")


def suite(name: str, engine: str) -> Row:
    words = (
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "-p",
        "no:xdist",
        "-p",
        "no:hypothesispytest",
    )
    chosen = ("--lab-engine", engine) if name == "lab" else ()
    return Row(name, command(sys.executable, *words, *chosen, SUITES / f"test_with_{name}.py", cwd=SUITES))


if __name__ == "__main__":
    main()
