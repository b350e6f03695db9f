"""How far projections are off: the step time of 8 ranks (and 16), projected from 2 and 4, beside what is measured.

    .venv/bin/python bench/projection.py [--rounds 5] [--ranks 8 16] [--scenario ddp fsdp pipeline] [--json]
    .venv/bin/python bench/projection.py --on device      own work is waited for, as if devices did it
    .venv/bin/python bench/projection.py --wait 30        wait up to 30 s before each run until the machine is quiet

A round makes runs of 2, 4 and 8 ranks one after the other on the local engine, in every second round the largest first,
projects the last from the first two by `lab project` itself, and compares medians of steps. Each run has a cluster of
its own: in a common one, new workers would import torch while the next run is measured. The table has medians over
rounds for each scenario.

All ranks share the cores of this machine with other programs, and how many of these there will be no model knows. So
there are two errors: of what is projected with as many others as there were beside the first two runs (`error`), and,
as the part of it that is the model's, with as many as the trace of the measured run tells (`known`, by `--others`).
Where own work is done by devices, ranks do not compete for cores but in their calls, so load matters less.
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
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "bench" / "projected"
SCENARIOS = ("ddp", "fsdp", "pipeline")
FROM = (2, 4)
ON = ("cores", "device")
"""Where own work is done: by this machine's cores, or nowhere, as it is waited for."""
BAR = 0.15
"""The median error of each scenario ought not to be above it."""
_QUIET = 0.2
"""Part of the machine that others may take when a run begins."""
_LOOK_S = 0.25


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, nargs="+", default=[8])
    parser.add_argument("--scenario", choices=SCENARIOS, nargs="+", default=list(SCENARIOS))
    parser.add_argument("--on", choices=ON, nargs="+", default=list(ON))
    parser.add_argument("--steps", type=int, default=12, help="training steps of a run (default: 12)")
    parser.add_argument(
        "--wait", type=float, default=0.0, metavar="SECONDS", help="for a quiet machine, before each run"
    )
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the records there")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(arguments.rounds):
            for row in _round((arguments.keep or Path(folder)).absolute() / str(turn), turn, arguments):
                rows.append(row)
                if not arguments.json:
                    print(_line(row), flush=True)
    if arguments.json:
        print(json.dumps(rows))
    else:
        print(_summary(rows))


def _round(folder: Path, turn: int, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One run of each scenario at each size; the sizes close to one another in time."""
    folder.mkdir(parents=True)
    sizes = (*FROM, *arguments.ranks)
    for name, on in product(arguments.scenario, arguments.on):
        runs, loads = {}, {}
        for ranks in sizes if turn % 2 == 0 else sizes[::-1]:
            _wait(arguments.wait)
            runs[ranks] = _run(folder, name, on, ranks, arguments.steps)
            loads[ranks] = os.getloadavg()[0]
        for ranks in arguments.ranks:
            yield {"scenario": name, "on": on, "load": loads[ranks], **_compared(ranks, runs)}


def _run(folder: Path, name: str, on: str, ranks: int, steps: int) -> Path:
    """The record of a run."""
    from lab import Cluster

    home = Path.cwd()
    os.chdir(folder)  # records go there
    try:
        with Cluster(nodes=ranks, name=f"projection-{os.getpid()}", engine="local") as cluster:
            result = cluster.run(str(SCRIPTS / f"{name}.py"), args=[str(steps), on], nodes=ranks, trace_values=0)
        if not result.passed:
            raise SystemExit(f"{name} on {ranks} ranks: {result.reason}")
        return Path(str(result.path)).absolute()
    finally:
        os.chdir(home)


def _compared(ranks: int, runs: dict[int, Path]) -> dict[str, Any]:
    smaller = [runs[one] for one in FROM]
    measured = _projected([runs[ranks]], ranks)
    check, others = measured["checks"][0], (measured["machine"] or {}).get("others", 0.0)
    step_s = check["measured_s"]
    blind = _projected(smaller, ranks)
    row, known = blind["rows"][0], _projected(smaller, ranks, "--others", str(others))
    return {
        "ranks": ranks,
        "projected_s": row["step_s"],
        "low_s": row["low_s"],
        "high_s": row["high_s"],
        "measured_s": step_s,
        "error": row["step_s"] / step_s - 1,
        "known_error": known["rows"][0]["step_s"] / step_s - 1,
        "replayed_error": check["step_s"] / step_s - 1,
        "others": others,
        "others_before": (blind["machine"] or {}).get("others", 0.0),
    }


def _projected(runs: list[Path], ranks: int, *more: str) -> dict[str, Any]:
    words = ["project", *map(str, runs), "--ranks", str(ranks), "--json", *more]
    command = [sys.executable, "-c", "import sys; from lab.cli.main import main; sys.exit(main(sys.argv[1:]))", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"lab project: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _busy() -> float:
    """The part of this machine that programs take now, while no run goes on."""
    first = _ticks()
    time.sleep(_LOOK_S)
    second = _ticks()
    passed = sum(second) - sum(first)
    return 1 - (second[3] + second[4] - first[3] - first[4]) / passed if passed else 0.0


def _ticks() -> list[int]:
    with open("/proc/stat") as file:
        return [int(word) for word in file.readline().split()[1:9]]


def _wait(longest_s: float) -> None:
    """Wait until others leave the machine alone, or for so long."""
    until = time.monotonic() + longest_s
    while time.monotonic() < until and _busy() > _QUIET:
        pass


def _line(row: dict[str, Any]) -> str:
    inside = "inside" if row["low_s"] <= row["measured_s"] <= row["high_s"] else "outside"
    return (
        f"{row['scenario']:<9}{row['on']:<7}{row['ranks']:>3} ranks  projected {1e3 * row['projected_s']:7.1f} ms "
        f"({1e3 * row['low_s']:.0f} to {1e3 * row['high_s']:.0f})  measured {1e3 * row['measured_s']:7.1f} ms  "
        f"{100 * row['error']:+6.1f} %  {inside}; {row['others_before']:.1f} other programs, then {row['others']:.1f}: "
        f"known {100 * row['known_error']:+.1f} %; replayed {100 * row['replayed_error']:+.1f} %; "
        f"load {row['load']:.1f}"
    )


def _summary(rows: list[dict[str, Any]]) -> str:
    lines = [
        "",
        f"{'scenario':<9}{'on':<7}{'ranks':>6}{'rounds':>8}{'projected':>12}{'measured':>12}{'error':>9}{'inside':>10}"
        f"{'known':>9}{'replayed':>10}",
    ]
    kinds = dict.fromkeys((row["scenario"], row["on"], row["ranks"]) for row in rows)
    for kind in sorted(kinds, key=lambda kind: (kind[1], kind[2])):
        ours = [row for row in rows if (row["scenario"], row["on"], row["ranks"]) == kind]
        inside = sum(row["low_s"] <= row["measured_s"] <= row["high_s"] for row in ours)
        projected, measured = (statistics.median(row[key] for row in ours) for key in ("projected_s", "measured_s"))
        error, known, replayed = (100 * _error(ours, key) for key in ("error", "known_error", "replayed_error"))
        lines.append(
            f"{kind[0]:<9}{kind[1]:<7}{kind[2]:>6}{len(ours):>8}{1e3 * projected:>9.1f} ms{1e3 * measured:>9.1f} ms"
            f"{error:>7.1f} %{inside:>5} of {len(ours):<2}{known:>7.1f} %{replayed:>8.1f} %"
        )
    loads = sorted(row["load"] for row in rows)
    told = f"load {loads[0]:.1f} to {loads[-1]:.1f}"
    return "\n".join(
        [*lines, f"median error of all {100 * _error(rows, 'error'):.1f} %; bar {100 * BAR:.0f} %; {told}"]
    )


def _error(rows: list[dict[str, Any]], key: str) -> float:
    return statistics.median(abs(row[key]) for row in rows)


if __name__ == "__main__":
    main()
