"""Runs random schedules of faults over six scenarios, and says how each ended and whom its verdict named.

    .venv/bin/python dev/random_schedules.py --engine docker --count 200 --out schedules.jsonl

The seeds are fixed: the n-th schedule is the same whenever these make the same calls. A line of JSON is written
for each; the summary counts verdicts, misses of the culprit (a run that passed should name nobody), what was broken,
what was left behind.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from lab.cluster import Cluster
from lab.errors import LabError
from lab.features.chaos.trials import Schedule, Trial, Trials, anybody_failed, trials_next_to
from lab.features.faults.kinds import FaultKind, key_of
from lab.features.faults.kinds.links import LinkFault
from lab.record.result import Result
from lab.run.options import RunOptions
from lab.spec.load import open_scenario
from lab.words import name_link

ROOT = Path(__file__).resolve().parent.parent
SCENARIOS = (
    *("scenarios/scatter", "scenarios/collectives/all_reduce", "scenarios/point_to_point/ring_all_reduce"),
    *("scenarios/ddp/toy_loop", "scenarios/checkpoints/resume", "tests/engines/planted/whole"),
)
"""The last two write checkpoints; after a failed run the last one goes on from what it has left."""
SEED = 20_260
GRACE_S = 10.0
"""Beyond a run's deadline, for its end."""


def main() -> int:
    """Run them; the exit code is 1 where a run had no verdict in time, broke something, or left something behind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", choices=("docker", "local"), default="docker")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument(
        "--seed", type=int, default=SEED, help=f"of the first scenario; others count on (default: {SEED})"
    )
    parser.add_argument("--kinds", default="", help="draw these alone, e.g. kill,pause")
    parser.add_argument("--most", type=int, default=2, help="most faults at once")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no further one after so long")
    parser.add_argument("--out", type=Path, default=Path("schedules.jsonl"))
    parser.add_argument("--runs", type=Path, default=Path(".lab/schedules"), help="where the records go")
    arguments = parser.parse_args()
    until = time.monotonic() + arguments.seconds
    told: list[dict[str, Any]] = []
    with arguments.out.open("w", encoding="utf-8") as out:
        for number, path in enumerate(SCENARIOS):
            count = len(range(number, arguments.count, len(SCENARIOS)))
            try:
                for one in run_scenario(path, count, arguments.seed + number, until, arguments):
                    told.append(one)
                    out.write(json.dumps(one) + "\n")
                    out.flush()
                    print(line_of(one), flush=True)
            except LabError as error:
                print(f"{path} ended early: {error.message}", flush=True)
    print(summary(told))
    return 1 if any(one["late"] or one["broken"] or one["left"] or one["ended"] == "error" for one in told) else 0


def run_scenario(path: str, count: int, seed: int, until: float, arguments: argparse.Namespace) -> Any:
    """Schedules of one scenario, on one cluster; what became of each."""
    scenario, options = open_scenario(ROOT / f"{path}.yaml"), RunOptions(runs=arguments.runs)
    cluster = Cluster(name="schedules", engine=arguments.engine)
    found: list[dict[str, Any]] = []
    with trials_next_to(cluster, scenario, options) as trials:
        named = [word for word in arguments.kinds.split(",") if word]
        pool = trials.make_pool(trials.undisturbed(), seed, named, arguments.most)
        tried: set[str] = set()
        for _ in range(count):
            schedule = pool.draw(tried)
            if schedule is None or time.monotonic() > until:
                break
            found.append(told_of(path, trials.attempt(schedule, "drawn"), trials, schedule, arguments.runs))
            if len(found) > 1:
                yield found[-2]
    if found:
        yield {**found[-1], "left": any(one.name.startswith("schedules-chaos") for one in cluster.engine.find())}


def told_of(path: str, trial: Trial, trials: Trials, schedule: Schedule, runs: Path) -> dict[str, Any]:
    """What became of one, with whether the verdict named who was to blame."""
    one = {"scenario": path, **trial.to_json(), "late": False, "left": False}
    try:
        result = Result.load(runs / trial.run)
    except LabError:
        return {**one, "culprit": None, "injected": [], "named": False}
    one["late"] = result.duration_s is None or result.duration_s > trials.scenario.timeout_s + GRACE_S
    injected = sorted(guilty(result, schedule))
    culprit = result.culprit
    who = None if culprit is None else culprit.link or culprit.node or f"rank {culprit.rank}"
    well = result.passed or not (anybody_failed(result) or result.unmet_by_script)
    named = culprit is None if well or not injected else who in injected
    return {**one, "culprit": who, "injected": injected, "named": named}


def guilty(result: Result, schedule: Schedule) -> set[str]:
    """The nodes and links to which a fault was done that came about, and the nodes of the ranks to which one was."""
    node_of = {rank.rank: rank.node for rank in result.ranks}
    done = {str(one["fault"]) for one in result.faults if not one.get("failed")}
    faults = [fault for fault in schedule if str(fault) in done]
    ranks = {rank for fault in faults for rank in fault.what.ranks}
    ranks |= {fault.when.rank for fault in faults if fault.what.by_worker and fault.when.rank is not None}
    links = {name_link(*pair) for fault in faults for pair in pairs_of(fault.what, sorted({*node_of.values()}))}
    return links | {node for fault in faults for node in fault.what.nodes} | {node_of.get(rank, "") for rank in ranks}


def pairs_of(what: FaultKind, nodes: list[str]) -> set[frozenset[str]]:
    """Pairs of nodes whose connection a fault affects: without its cable, a node is in a pair with all others."""
    if not isinstance(what, LinkFault):
        cut = what.nodes if key_of(type(what)) in ("disconnect", "power_off") else ()
        return {frozenset((node, peer)) for node in cut for peer in nodes if peer != node}
    pairs = set[frozenset[str]]()
    for node, table in what.tables({node: node for node in nodes}).items():
        peers = {peer for side in ("to", "from") for peer, condition in table[side].items() if condition}
        is_whole_cable = bool(table.keys() - {"to", "from", "address"})
        pairs |= {frozenset((node, peer)) for peer in (nodes if is_whole_cable else peers) if peer != node}
    return pairs


def line_of(one: dict[str, Any]) -> str:
    """One, on a line."""
    blame = "named" if one["named"] else f"MISSED: says {one['culprit']}, was {one['injected']}"
    faults = f"{one['scenario']}  {json.dumps(one['schedule'])}"
    return f"{one['ended']:7} {one['seconds']:6.2f} s  {blame}  {faults}  {one['broken']}"


def summary(told: list[dict[str, Any]]) -> str:
    """All of them."""
    named, misses = sum(one["named"] for one in told), [one for one in told if not one["named"]]
    failed = [one for one in told if one["ended"] != "passed"]
    lines = [
        f"{len(told)} schedules: {dict(Counter(one['ended'] for one in told))}",
        f"culprit right in {named} of {len(told)}; of those that did not pass in "
        f"{sum(one['named'] for one in failed)} of {len(failed)}",
        f"innocents accused: {sum(bool(one['culprit']) for one in misses)}",
        f"late: {sum(one['late'] for one in told)}, left something behind: {sum(one['left'] for one in told)}, "
        f"broke something: {sum(bool(one['broken']) for one in told)}, "
        f"run once more: {sum(bool(one['after']) for one in told)}",
        *(f"miss: {line_of(one)}\n      {one['reason']}" for one in misses),
        *(f"broken: {line_of(one)}" for one in told if one["broken"]),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
