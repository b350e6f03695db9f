"""One run from a plan to a result: describe, drive, check, judge."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.diagnosis.facts import RankFacts, RunFacts
from lab.engine.protocol import Channel, Engine
from lab.feature import hook
from lab.node.messages.agent import Check, Exited
from lab.plan.cluster import ClusterInfo
from lab.plan.plan import HOST, Plan
from lab.record.events import NotShipped
from lab.record.layout import OUTPUTS
from lab.record.write import RecordWriter
from lab.run.companion import Companion, Stdin
from lab.run.drive import Driver
from lab.run.observe import Observer
from lab.run.options import RunOptions
from lab.run.outputs import Outputs
from lab.run.ship import EMPTY, file_messages, pack_folder
from lab.spec.load import dump_scenario
from lab.words import format_duration

if TYPE_CHECKING:
    from lab.record.result import Result

_CHECK_DEADLINE_S = 60.0


def execute(
    plan: Plan,
    cluster: ClusterInfo,
    engine: Engine,
    channels: list[Channel],
    writer: RecordWriter,
    observer: Observer,
    options: RunOptions,
    companions: Sequence[Companion] = (),
) -> Result:
    """Run a plan on a cluster, through channels to the agents of the nodes that take part, and judge it.

    Raises:
        LabError: the run could not begin, or its record could not be written; a run that began has a result.
    """
    scenario = plan.scenario
    parcel = EMPTY if options.calls else pack_folder(scenario.script.parent, cluster.shape.data.values())
    if parcel.warning:
        observer.progress(parcel.warning)
    description: dict[str, Any] = {
        **plan.to_json(),
        "engine": cluster.engine,
        "cluster": cluster.name,
        "memory_bytes": cluster.limits.memory_bytes,
        "began": time.time(),
    }
    for companion in companions:
        description |= companion.describe(writer.path)
    if options.turn is not None:
        description["turn"] = vars(options.turn)
    writer.describe(dump_scenario(scenario), scenario.script, description)
    if plan.launcher.name != (options.launcher or scenario.launcher.name):
        observer.progress(f"{plan.launcher.name} starts the ranks: {plan.backend} needs it")
    outputs = Outputs(options.outputs or writer.path / OUTPUTS)
    stdin = _stdin(plan, options, observer) or Stdin()
    driver = Driver(plan, cluster, engine, channels, writer, observer, stdin, companions)

    def run_check(facts: RunFacts) -> None:
        if scenario.expect.check:
            from lab.run.outcome import results_for_check

            results = results_for_check(facts, writer)
            check(driver, scenario.expect.check, results, _CHECK_DEADLINE_S, options.check_archive)

    try:
        judges = "lab.run.outcome"  # imported while the ranks are busy: nobody waits for it then
        facts = driver.drive(parcel.archive, outputs, meanwhile=lambda: import_module(judges), afterwards=run_check)
    except BaseException:
        writer.close()
        raise
    driver.collector.attempts.end()
    if any(rank.error.startswith("ModuleNotFoundError") for rank in facts.ranks):
        for fact in not_shipped(facts, scenario.script.parent):
            driver.collector.fact(fact)
    for companion in companions:
        companion.end()
    from lab.run.outcome import outcome

    return outcome(plan, cluster, facts, writer, outputs, options.update, companions)


def _stdin(plan: Plan, options: RunOptions, observer: Observer) -> Stdin | None:
    """What the ranks read; None: nothing."""
    if options.calls is not None:
        options.calls.timeout_s = plan.timeout_s
        calls: Stdin = options.calls
        return calls
    if not (options.stdin or plan.interactive is not None or (options.terminal and os.isatty(0) and os.isatty(1))):
        return None
    choose_stdin = hook("stdin")
    return choose_stdin(plan, observer, fed=options.stdin) if choose_stdin else None


def check(
    driver: Driver, reference: str, results: list[dict[str, Any]], deadline_s: float, archive: bytes = b""
) -> RankFacts:
    """Run the check `file.py:function`, after all ranks have ended and before anything is removed.

    `archive` is the folder that it is in, where that is not the one that was shipped to the ranks.
    """
    plan, agents, facts = driver.plan, driver.agents, driver.facts.rank(-1)
    if HOST in agents.alive:
        files = file_messages(plan.run, archive, for_check=True) if archive else ()
        agents.say(HOST, *files, Check(plan.run, reference, results, dict(plan.workers[0].env)))
        if not agents.listen_for(lambda: facts.over, deadline_s):
            error = f"the check did not end within {format_duration(deadline_s)}"
            driver.collector.fact(Exited(time=time.time(), rank=-1, node=HOST, error=error))
    return facts


_LEVELS = 4
"""Folders above that of the script in which a person's own modules are looked for."""


def not_shipped(facts: RunFacts, folder: Path) -> Iterator[NotShipped]:
    """A fact for each such module; `folder` is the one that was shipped."""
    from lab.diagnosis.errors import missing_module

    for module in sorted({name for rank in facts.ranks if (name := missing_module(rank.error))}):
        path = _find(module, folder)
        if path is not None:
            yield NotShipped(time.time(), module, str(path), str(folder))


def _find(module: str, folder: Path) -> Path | None:
    if (folder / module).is_dir():  # left out, whatever it holds
        return folder / module
    above = [parent for parent in folder.parents[:_LEVELS] if parent != Path(parent.anchor)]
    further = [Path(one) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    for place in (folder, *above, Path.cwd(), *further):
        for path in (place / f"{module}.py", place / module / "__init__.py"):
            if path.is_file():
                return path if path.name != "__init__.py" else path.parent
    return None
