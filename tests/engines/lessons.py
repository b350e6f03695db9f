"""The library under test: which lessons there are, where they run, and their runs, each made once a session."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from lab import Cluster, Result
from lab.engine.doctor import explain_missing_gpus
from lab.errors import MachineLacks
from lab.features.faults.fault import beyond_engine
from lab.spec.load import find_scenarios, load_scenario
from lab.spec.scenario import Scenario

LIBRARY = Path(__file__).resolve().parents[2] / "scenarios"
FILES = {str(path.relative_to(LIBRARY).with_suffix("")): path for path in find_scenarios([LIBRARY])}
Lesson = Callable[..., Result]
PATIENCE_S = 150.0
"""How long a lesson may take on a machine that is busy."""
LONG = (
    "elastic/", "survival/", "network/", "incidents/start_up", "incidents/lemon_node", "incidents/silent_hang",
    "incidents/watchdog_timeout", "incidents/gc_pauses", "incidents/switch", "incidents/storage_slow",
    "incidents/code_change", "incidents/nic_flap", "incidents/node_unreachable", "incidents/maintenance",
    "incidents/slow_compute", "mpi/", "rendezvous/spawn",
)  # fmt: skip
"""What takes long everywhere: agents of torchrun have to meet, and to notice first what was lost; others wait until a
time is up; each rank that mpiexec or a script starts imports torch."""
ON_DOCKER = (
    *("scatter", "collectives/tutorial_", "collectives/all_to_all", "collectives/monitored_barrier"),
    *("point_to_point/recv", "groups/outside", "ddp/story", "beyond_ddp/fully_sharded"),
)
"""What runs on the Docker engine in the short run too: its image has the compiled recorder, of which `test_battery`
tries every call. The rest does there what it does on the local engine, and runs there in the long run."""


@cache
def loaded(name: str) -> Scenario:
    """The scenario of a lesson, which each of the processes that run tests looks at several times."""
    return load_scenario(FILES[name])


def own_size(name: str) -> tuple[int, int]:
    """Nodes of a lesson, and workers of each."""
    scenario = loaded(name)
    assert scenario.nodes is not None, "a lesson says how many nodes it is about"
    return scenario.nodes, scenario.nproc_per_node or 1


def runs_on(engine: str, name: str) -> bool:
    """Whether a lesson breaks nothing that an engine cannot break."""
    scenario = loaded(name)
    return not beyond_engine(scenario, engine)


def runs_locally(name: str) -> bool:
    """Whether the local engine can break all that a lesson breaks."""
    return runs_on("local", name)


def on_engines(names: Iterable[str], *also: str) -> pytest.MarkDecorator:
    """Gives a test an engine and a lesson: on Docker what only that can do or shows, and in the long run the rest.

    On the engines named besides it runs in the long run, where they can do what it asks for.
    """
    docker, long = pytest.mark.docker, pytest.mark.long
    rows = []
    for name in names:
        on_local = runs_locally(name)
        rows += [
            pytest.param(other, name, id=f"{other}-{name}", marks=(getattr(pytest.mark, other), long))
            for other in also
            if runs_on(other, name)
        ]
        if on_local:
            rows.append(pytest.param("local", name, id=f"local-{name}", marks=long if name.startswith(LONG) else ()))
        marks = docker if name.startswith(ON_DOCKER) or not (on_local or name.startswith(LONG)) else (docker, long)
        rows.append(pytest.param("docker", name, id=f"docker-{name}", marks=marks))
    return pytest.mark.parametrize(("engine", "name"), rows, indirect=["engine"])


@dataclass(frozen=True)
class Lessons:
    """Runs of lessons on one engine, kept in a folder that the workers of a session share."""

    folder: Path
    cluster: Callable[[int], Cluster]
    """One that has at least so many nodes."""

    def __call__(self, name: str, nodes: int | None = None, nproc_per_node: int | None = None) -> Result:
        """Run a lesson at its own size or another; whoever comes while that is done waits for it."""
        size = nodes or own_size(name)[0], nproc_per_node or own_size(name)[1]
        missing = explain_missing_gpus(loaded(name).resources.gpus, size[0])
        if missing:
            pytest.skip(missing)
        folder = self.folder / f"{name}-{size[0]}x{size[1]}"
        folder.mkdir(parents=True, exist_ok=True)
        record = folder / "record"
        with (folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not record.exists():
                runs = folder / "runs"
                short = loaded(name).timeout_s < Scenario.timeout_s  # where the end of its time is the lesson
                options = {"nodes": nodes, "nproc_per_node": nproc_per_node, "runs": runs}
                try:
                    result = self.cluster(size[0]).run(FILES[name], timeout_s=None if short else PATIENCE_S, **options)
                except MachineLacks as error:
                    pytest.skip(f"needs kernel with netem: {error.message}")
                assert result.path is not None
                record.symlink_to(result.path)
        return Result.load(record.resolve())
