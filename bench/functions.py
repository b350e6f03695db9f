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
import tempfile
from pathlib import Path

from bench import ROOT, Row, command

SUITES = ROOT / "bench" / "suites"
WORDS = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null")
BARS = {"spawn": 0.15, "continuous": 0.6}
"""Largest part of their time that the lab may take."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("docker", "local"), default="docker")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--gloo", action="store_true", help="ten tests in the manner of torch's gloo suite instead")
    options = parser.parse_args()
    if options.gloo:
        gloo(options)
        return
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


def gloo(options: argparse.Namespace) -> None:
    """Ten tests as a class on torch's base, on the lab's with one line changed, and as functions."""
    written = SUITES / "gloo_torch.py"
    with tempfile.TemporaryDirectory() as folder:
        changed = Path(folder) / "test_gloo_class.py"
        changed.write_text(
            written.read_text().replace("torch.testing._internal.common_distributed", "lab.testing.cases")
        )
        told = {"torch": written, "class": changed, "functions": SUITES / "test_gloo_ported.py"}
        for name, path in told.items():
            lines = sum(bool(line.strip()) for line in path.read_text().splitlines())
            chosen = () if name == "torch" else ("--lab-engine", options.engine)
            action = command(sys.executable, *WORDS, *chosen, path, cwd=Path(folder))
            seconds = min(action() for _ in range(options.repeats))
            print(f"{name:10} {lines:4} lines {seconds:7.2f} s", flush=True)


def suite(name: str, engine: str) -> Row:
    """The thirty tests, run in one way."""
    chosen = ("--lab-engine", engine) if name == "lab" else ()
    return Row(name, command(sys.executable, *WORDS, *chosen, SUITES / f"test_with_{name}.py", cwd=SUITES))


if __name__ == "__main__":
    main()
