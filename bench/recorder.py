"""What recording costs: the same work with and without the recorder, in turn, on the same nodes.

    python bench/recorder.py                          compiled and python recorder, three containers
    python bench/recorder.py --engine local --nodes 2 --recorder compiled
    python bench/recorder.py --armed                  with triggers of faults that are never reached
    python bench/recorder.py --json                   the same as data

A pair is a block of iterations with the recorder and one without, one behind the other, in two processes of each rank.
A round begins with new processes and says the median over its pairs; the ratio is the mean over all rounds, with its
standard error. The compiled recorder is measured where it is built: in the lab's image, or for the local engine by
`python -m lab.node.recorder.build`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKER = ROOT / "bench" / "recorder_worker.py"
BARS = {
    "compiled": {
        "DDP step of 10-1000-1000-5": 1.02,
        "all_reduce 4 KB": 1.05,
        "all_reduce 4 MB": 1.01,
    },
    "python": {
        "DDP step of 10-1000-1000-5": 1.25,
        "all_reduce 4 KB": 1.6,
        "all_reduce 4 MB": 1.08,
    },
}
"""Largest ratios that the project promises."""
WORK = ("DDP step of 10-1000-1000-5", "DDP step of 10-10-5", "all_reduce 4 KB", "all_reduce 4 MB")
"""Of the second nothing is promised: its 165 gradients are kept as values, in a step that computes next to nothing."""


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--recorder", choices=tuple(BARS), nargs="+", default=list(BARS))
    parser.add_argument("--work", choices=WORK, nargs="+", default=list(WORK), help="rows (default: all)")
    parser.add_argument("--engine", choices=("docker", "local"), default="docker")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=6, help="rounds for each row (default: 6)")
    parser.add_argument("--pairs", type=int, default=30, help="pairs of blocks in a round (default: 30)")
    parser.add_argument("--armed", action="store_true", help="with triggers of faults that are never reached")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from lab import Cluster

    found: dict[str, dict[str, dict[str, float]]] = {}
    cluster = Cluster(nodes=arguments.nodes, name=f"bench-{uuid.uuid4().hex[:6]}", engine=arguments.engine)
    with cluster, tempfile.TemporaryDirectory() as runs:
        for recorder in arguments.recorder:
            words = (recorder, "armed" if arguments.armed else "plain", str(arguments.pairs), *arguments.work)
            rounds = []
            for number in range(arguments.rounds):
                print(f"{recorder}: round {number + 1} of {arguments.rounds}", file=sys.stderr)
                result = cluster.run(WORKER, args=words, runs=Path(runs), trace=False, timeout_s=900)
                if not result.passed:
                    sys.exit(f"bench: {result.reason}")
                rounds.append([rank.notes for rank in result.ranks])
            found[recorder] = {
                name: over_rounds([means([notes[name] for notes in ranks]) for ranks in rounds])
                for name in arguments.work
            }
    if arguments.json:
        print(json.dumps(found))
    else:
        print(table(found))


def means(measured: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each of the figures."""
    return {key: statistics.mean(figures[key] for figures in measured) for key in measured[0]}


def over_rounds(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The mean over all rounds, and the standard error of the ratio."""
    ratios = [found["ratio"] for found in rounds]
    error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else float("nan")
    return {**means(rounds), "ratio_error": error}


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    """A row for each recorder and kind of work."""
    lines = [f"{'':<36}{'without':>10}{'with':>10}{'more':>10}{'processor':>12}  ratio"]
    for recorder, rows in found.items():
        for name, row in rows.items():
            bar = BARS[recorder].get(name)
            promised = "nothing promised" if bar is None else f"promised: at most {bar:g}"
            missed = "" if bar is None or row["ratio"] <= bar else "  MISSED"
            times = "".join(f"{row[key] * 1e6:>7.0f} us" for key in ("plain_s", "recorded_s", "extra_s"))
            ratio = f"{row['ratio']:.3f} ± {row['ratio_error']:.3f} ({promised})"
            lines.append(f"{recorder + ', ' + name:<36}{times}{row['extra_cpu_s'] * 1e6:>9.0f} us  {ratio}{missed}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
