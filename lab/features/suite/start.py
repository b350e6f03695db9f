"""From what is asked of a suite to its cases and clusters: the way in for the command line and for Python."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lab.engine.doctor import free_memory_bytes
from lab.engine.ownership import check_name, default_name
from lab.engine.protocol import Engine
from lab.engine.select import select_engine
from lab.errors import ClusterUnfit, UsageError
from lab.features.suite.matrix import Matrix, make_cases, matching
from lab.features.suite.outcome import Case, SuiteResult
from lab.features.suite.schedule import Jobs, choose_jobs, cores, known_durations
from lab.features.suite.suite import Conduct, run_cases
from lab.features.suite.watcher import Nobody, Watcher
from lab.plan.cluster import ClusterInfo
from lab.plan.fit import has_wishes, refuse_unfit
from lab.plan.options import PlanOptions
from lab.run.options import RunOptions
from lab.run.place import Place
from lab.spec.load import find_scenarios, open_scenario
from lab.spec.scenario import Scenario

_SEEDS = 1_000_000
"""A seed that nobody asked for is smaller, so that it can be typed."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked of a suite."""

    scenarios: Sequence[Scenario]
    matrix: Matrix = Matrix()  # noqa: RUF009  # frozen
    only: str = ""
    """Words that names and files of cases must contain, see `lab.features.suite.matrix`; empty: all."""
    engine: str | Engine = "auto"
    name: str | None = None
    """A cluster; None: that of the current folder."""
    shape: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a cluster's shape that were asked for."""
    options: RunOptions = RunOptions()  # noqa: RUF009  # frozen
    """How each case is run."""
    jobs: int | None = None
    """At most so many clusters side by side; None: as many as the machine carries."""
    retries: int = 0
    repeat: int = 1
    shuffle: bool = False
    seed: int | None = None
    """Of the order, and of the first repetition; None: one by chance, where one is needed."""
    most_failures: int | None = None


def cases_of(asked: Asked, there: ClusterInfo | None = None, seed: int | None = None, engine: str = "") -> list[Case]:
    """The cases that are meant.

    Args:
        asked: what is asked.
        there: a cluster that says how large a scenario is that does not say so.
        seed: of the first repetition; None: scripts are given none.
        engine: what provides the nodes; empty: that is not known yet.

    Raises:
        UsageError: there are none.
    """
    cases = make_cases(
        asked.scenarios,
        asked.matrix,
        asked=asked.shape,
        usual=there.shape if there else None,
        engine=engine,
        cold=asked.options.cold,
        repeat=asked.repeat,
        seed=seed,
    )
    cases = [_or_skipped(case) for case in cases]
    if asked.only:
        meant = matching(asked.only)
        chosen = [case for case in cases if meant(case)]
        if not chosen:
            raise UsageError(f"none of {len(cases)} cases is meant by -k {asked.only!r}", "--list shows them all")
        return chosen
    return cases


def _or_skipped(case: Case) -> Case:
    """A case, skipped where this machine lacks GPUs for it."""
    if case.skipped or not case.shape.gpus:
        return case
    from lab.engine.doctor import refusal  # few scenarios want any

    return replace(case, skipped=refusal(case.shape.gpus))


def start(asked: Asked, watcher: Watcher | None = None) -> SuiteResult:
    """Run a suite.

    Raises:
        UsageError: nothing of it can run.
        EngineUnavailable: no engine answers.
        ClusterUnfit: a cluster was named that somebody uses.
    """
    watcher = watcher or Nobody()
    if asked.matrix.image:  # whoever calls named them, not a scenario
        asked = replace(asked, options=replace(asked.options, pull=True))
    name = check_name(asked.name) if asked.name else default_name()
    engine, why = select_engine(asked.engine, name) if isinstance(asked.engine, str) else (asked.engine, "")
    if why:
        watcher.told(0, why)
    place = Place(engine=engine, name=name, asked=asked.shape, announce=lambda text: watcher.told(0, text))
    seed = asked.seed
    if seed is None and (asked.shuffle or asked.repeat > 1):
        seed = int.from_bytes(os.urandom(4), "big") % _SEEDS
    scripts_seed = seed if asked.repeat > 1 or asked.seed is not None else None
    cases, there = _on_what_is_there(asked, place, scripts_seed, watcher)
    if all(case.skipped for case in cases):
        reasons = dict.fromkeys(case.skipped for case in cases)
        raise UsageError(f"none of {len(cases)} cases can run: {'; '.join(reasons)}", "--list shows them")
    can_run = [case for case in cases if not case.skipped]
    if there is not None:
        jobs = Jobs(1, f"one after the other on cluster {name}, which is up")
    else:
        jobs = choose_jobs(asked.jobs, can_run, cores(), free_memory_bytes())
    known_s = known_durations(asked.options.runs, {case.scenario.name for case in can_run}) if jobs.most > 1 else {}
    conduct = Conduct(
        jobs=jobs,
        retries=asked.retries,
        most_failures=asked.most_failures,
        shuffle=asked.shuffle,
        seed=seed,
        known_s=known_s,
    )
    return run_cases(
        cases,
        conduct,
        engine=engine,
        name=name,
        asked=asked.shape,
        options=asked.options,
        stays=there is not None,
        watcher=watcher,
    )


def _on_what_is_there(
    asked: Asked, place: Place, seed: int | None, watcher: Watcher
) -> tuple[list[Case], ClusterInfo | None]:
    """The cases, and the cluster that is up, if all of them can run on it one after the other."""
    if asked.jobs in (None, 1):
        try:
            there = place.there()
            if there is not None:
                cases = cases_of(asked, there, seed, place.engine.name)
                _refuse_others(cases, there)
                return cases, there
        except ClusterUnfit as unfit:
            watcher.told(0, f"using clusters of its own: {unfit.message}")
    return cases_of(asked, None, seed, place.engine.name), None


def _refuse_others(cases: Iterable[Case], there: ClusterInfo) -> None:
    """Refuse cases that need another cluster."""
    for case in cases:
        if case.skipped:
            continue
        if has_wishes(case.scenario):
            raise ClusterUnfit(f"{case.id} wants a cluster of another kind than {there.name}")
        refuse_unfit(there, case.scenario, PlanOptions(nodes=case.nodes, nproc_per_node=case.nproc_per_node))


def run_suite(
    paths: Iterable[str | Path | Scenario],
    *,
    nodes: Sequence[int] = (),
    nproc_per_node: Sequence[int] = (),
    image: Sequence[str] = (),
    watcher: Watcher | None = None,
    options: RunOptions | None = None,
    **more: Any,
) -> SuiteResult:
    """Run many scenarios on warm clusters side by side, as `lab test` does; all clusters are removed at its end.

    Args:
        paths: YAML files, folders, scripts, lessons as `"@scatter"`, or `Scenario`s.
        nodes: run each with so many nodes, one after the other.
        nproc_per_node: and with so many workers on each.
        image: and in each of these images.
        watcher: told what happens.
        options: how to run each.
        **more: `jobs`, `retries`, `repeat`, `shuffle`, `seed`, `most_failures`, `only`, `engine`, `name`, `shape`.

    Raises:
        ScenarioError: a scenario is not valid.
        UsageError: nothing of it can run.
        EngineUnavailable: no engine answers.
    """
    scenarios: list[Scenario] = []
    for path in paths:
        scenarios += [path] if isinstance(path, Scenario) else map(open_scenario, find_scenarios([Path(path)]))
    matrix = Matrix(nodes=tuple(nodes), nproc_per_node=tuple(nproc_per_node), image=tuple(image))
    return start(Asked(scenarios=scenarios, matrix=matrix, options=options or RunOptions(), **more), watcher)
