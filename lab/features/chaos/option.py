"""`lab run --chaos`: search for faults that a scenario does not survive."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.cli import arguments as shared
from lab.cli.arguments import say
from lab.cli.cmd_run import read_arguments
from lab.errors import UsageError
from lab.record.layout import RUNS

if TYPE_CHECKING:
    from lab.features.chaos.search import Found, Trial
    from lab.report.style import Style
    from lab.run.options import RunOptions
    from lab.spec.scenario import Scenario

_OPTIONS = {"seed": "--seed", "kinds": "--faults", "most": "--most", "out": "--out"}
_DRAWN = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--chaos`, and what belongs to it."""
    group = parser.add_argument_group("search for faults that the scenario does not survive")
    group.add_argument(
        "--chaos",
        action="store_true",
        help=f"run it under faults that are drawn from its own calls, phases and notes, on a cluster of its own; "
        f"--runs N: N schedules (default: {_DRAWN}); one that breaks something is shrunk and written as a scenario",
    )
    group.add_argument("--seed", type=int, metavar="N", help="draw the schedules of this number (default: 0)")
    group.add_argument(
        "--faults",
        dest="kinds",
        metavar="KINDS",
        help="draw these, e.g. kill,pause (default: all that do not change data)",
    )
    group.add_argument("--most", type=shared.positive, metavar="N", help="most faults at once (default: 3)")
    group.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="where the scenario goes (default: chaos-SEED-NAME.yaml, by the script)",
    )


def run(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Search where that is asked for; the exit code is 1 where something was found.

    Raises:
        UsageError: an option of a search is given, and no search is asked for.
    """
    if arguments.chaos:
        return _search(arguments, *read_arguments(arguments))
    given = [option for name, option in _OPTIONS.items() if getattr(arguments, name) is not None]
    if given:
        raise UsageError(f"{given[0]} belongs to a search", "add --chaos")
    return verb(arguments)


def _search(
    arguments: argparse.Namespace, scenarios: Sequence[Scenario], options: RunOptions, shape: dict[str, Any]
) -> int:
    import shlex
    from random import Random

    from lab.cli.arguments import ProgressDisplay
    from lab.engine.ownership import check_name, default_name
    from lab.engine.select import select_engine
    from lab.features.chaos.draw import Pool, kinds_drawn, moments_of
    from lab.features.chaos.scenario_file import place_for, scenario_of, write_scenario
    from lab.features.chaos.search import search
    from lab.features.chaos.trials import nodes_and_ranks, record_of, trials_on
    from lab.report.style import style_for

    if len(scenarios) != 1:
        raise UsageError(f"a search is of one scenario, not of {len(scenarios)}")
    scenario, seed, began = scenarios[0], arguments.seed or 0, time.monotonic()
    options, count = _counted(options)
    path = place_for(scenario, seed, arguments.out)
    name = check_name(arguments.name) if arguments.name else default_name()
    engine, why = select_engine(arguments.engine, name)
    asked = {key: value for key, value in shape.items() if value}
    quiet = arguments.quiet or arguments.json
    with ProgressDisplay(sys.stderr, quiet=quiet) as display:
        style = style_for(sys.stderr)
        if why:
            display.announce(why)
        with trials_on(engine, name, scenario, asked=asked, options=options, announce=display.announce) as trials:
            first = trials.undisturbed()
            nodes, ranks = nodes_and_ranks(first)
            named = [word for word in (arguments.kinds or "").split(",") if word]
            pool = Pool(
                random=Random(seed),
                kinds=kinds_drawn(engine.name, nodes, ranks, named),
                moments=moments_of(record_of(first)),
                nodes=nodes,
                ranks=ranks,
                most=arguments.most or Pool.most,
            )
            if not pool.moments:
                raise UsageError(f"{scenario.name} calls and notes nothing", "faults are drawn from what is on record")
            display.line(_beginning(first.duration_s or 0.0, pool, trials.timeout_s, trials.again))

            def told(trial: Trial) -> None:
                numbers[trial.step] = numbers.get(trial.step, 0) + 1
                display.line(_line(trial, numbers[trial.step], count, style))

            numbers: dict[str, int] = {}
            found = search(pool, count, trials.attempt, told)
            if found.schedule:
                size = len(nodes), len(ranks) // len(nodes)
                written = scenario_of(scenario, found, path, trials.timeout_s, size)
                file = (scenario.source or scenario.script).name
                more = ["--faults", arguments.kinds] * bool(named) + ["--most", str(pool.most)] * (
                    pool.most != Pool.most
                )
                command = ["lab", "run", file, "--chaos", "--seed", str(seed), "--runs", str(count), *more]
                write_scenario(written, found, shlex.join(command))
    if arguments.json:
        print(json.dumps(_data(found, scenario, seed, path)))
    else:
        say(_summary(found, path, time.monotonic() - began, style_for(sys.stdout)))
    return 1 if found.schedule else 0


def _counted(options: RunOptions) -> tuple[RunOptions, int]:
    """With --chaos, --runs may be a number: that of the schedules."""
    from dataclasses import replace

    word = str(options.runs)
    return (replace(options, runs=RUNS), int(word)) if word.isdecimal() else (options, _DRAWN)


def _beginning(duration_s: float, pool: Any, timeout_s: float, again: bool) -> str:
    from lab.features.faults.kind import key_of
    from lab.words import format_duration, plural

    kinds = ", ".join(key_of(kind) for kind in pool.kinds)
    after = "" if again else "; what a failed run leaves is not tried, as it does not pass twice"
    return (
        f"passed without faults in {format_duration(duration_s)}; {plural(len(pool.moments), 'moment')}; "
        f"faults: {kinds}; hung after {format_duration(timeout_s)}{after}"
    )


def _line(trial: Trial, number: int, count: int, style: Style) -> str:
    """`[12/50] ✔ passed  kill node1 when rank 0 comes to all_reduce 3`."""
    from lab.report.verdict import ended_line
    from lab.words import format_duration

    place = ended_line(number, count, trial.ended, trial.sentence, format_duration(trial.seconds), style)
    if trial.step != "drawn":
        place = f"  {'shorter' if trial.step == 'shrunk' else 'again'}: {place.partition('] ')[2]}"
    return f"{place}\n    {style.paint(trial.broken, 'bold')}" if trial.broken else place


def _summary(found: Found, path: Path, seconds: float, style: Style) -> str:
    from lab.features.chaos.search import PROOFS
    from lab.features.faults.fault import fault_data, fault_sentence
    from lab.report.verdict import counts_text
    from lab.words import plural

    drawn = sum(found.ends.values())
    text = f"{plural(drawn, 'schedule')}: {counts_text(found.ends, seconds, style)}"
    if found.schedule is None:
        return f"{text}\nnothing was found that is not survived"
    shortest = "\n".join(f"  {fault_sentence(fault_data(fault))}" for fault in found.schedule)
    proven = f"{found.proofs} of {PROOFS} runs" if found.proofs == PROOFS else "not every time"
    what = f"found, and shrunk to {plural(len(found.schedule), 'fault')} ({proven}): {found.broken}"
    return f"{text}\n{what}\n{shortest}\n  {path}"


def _data(found: Found, scenario: Scenario, seed: int, path: Path) -> dict[str, Any]:
    from lab.features.faults.fault import fault_data

    return {
        "scenario": scenario.name,
        "seed": seed,
        "ends": dict(found.ends),
        "found": [fault_data(fault) for fault in found.schedule or ()],
        "broken": found.broken,
        "proofs": found.proofs,
        "file": str(path) if found.schedule else None,
        "trials": [trial.to_json() for trial in found.trials],
    }
