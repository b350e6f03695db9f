"""Clusters on both engines for the tests here, and what they look at: runs, and what runs leave behind.

A test that asks for `engine`, `cluster`, `run` or anything built on them runs once on each engine. Clusters live as
long as the session, because a run on one that is up costs a tenth of a second; a lesson of the library is run once a
session for all who look at it.
"""

from __future__ import annotations

import json
import math
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from lab import Cluster, Result
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import read_facts
from lab.diagnosis.judge import judge_evidence
from lab.engine.agent_holder import LocalChannel
from lab.features.zygote.nodes import SWITCH
from lab.node import processes
from lab.node.warm import PRELOAD, SLOW_MODULES
from lab.plan.cluster import Node
from lab.record.read import Record
from lab.spec.load import scenario_from_script
from lab.spec.scenario import Expect, Scenario
from lab.trace.model import Trace
from lab.trace.read import read_trace
from tests.engines.lessons import Lesson, Lessons

SCRIPTS = Path(__file__).parent / "scripts"
NODES = 3
"""Of the cluster that most tests share: on Docker each node imports torch for itself."""
ENGINES = ["local", pytest.param("docker", marks=pytest.mark.docker)]
"""Every test here runs on each of them."""
SLURM = pytest.param("slurm", marks=pytest.mark.slurm)
"""The contract of an engine is tried on them too, and in the long run the library."""
KUBERNETES = pytest.param("kubernetes", marks=pytest.mark.kubernetes)
"""The same."""
Run = Callable[..., Result]
MakeCluster = Callable[..., Cluster]
STUB = Path(__file__).parents[1] / "stub"

_LOOK = r"""
read -r _ _ _ _ _ mine _ <"/proc/$$/stat"
for stat in /proc/[0-9]*/stat; do
  read -r line <"$stat" || continue
  read -r state parent group session _ <<<"${line##*) }"
  [ "$session" = "$mine" ] || echo "process ${line%%)*})"
done 2>/dev/null
find /var/lab /tmp /var/tmp /dev/shm /shared -path /var/lab/kept -prune -o -print 2>/dev/null | sed 's/^/file /'
cat /proc/net/tcp /proc/net/tcp6 | while read -r _ local _ state _; do [ "$state" = 0A ] && echo "port $local"; done
"""


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, person: None) -> str:
    """Name of the engine under test."""
    return str(request.param)


@pytest.fixture(scope="session")
def clusters(person: None) -> Iterator[dict[str, Cluster]]:
    """The clusters that were made, by engine and shape; they are removed when the session is over."""
    made: dict[str, Cluster] = {}
    yield made
    for cluster in made.values():
        cluster.down()


@pytest.fixture
def make_cluster(engine: str, clusters: dict[str, Cluster], request: pytest.FixtureRequest) -> MakeCluster:
    """Makes clusters of a shape, one of each on an engine."""
    group = request.node.get_closest_marker("xdist_group")
    trains = engine == "local" and group is not None and group.args == ("engines-local",)

    def make(**shape: Any) -> Cluster:
        key = f"{engine} {os.environ.get(SWITCH, '')} {sorted(shape.items())!r}"
        if key not in clusters:
            clusters[key] = Cluster(name=f"t-{uuid.uuid4().hex[:12]}", engine=engine, **shape)
            with pytest.MonkeyPatch.context() as patch:  # other tests use it too, and not only with a stub of torch
                path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
                patch.setenv("PYTHONPATH", os.pathsep.join(one for one in path if one != str(STUB)))
                if trains:  # else each node would import that after its first training
                    patch.setenv(PRELOAD, SLOW_MODULES[0])
                clusters[key].up()
        return clusters[key]

    return make


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    """The cluster that most tests share."""
    return make_cluster(nodes=NODES)


@pytest.fixture
def lesson(engine: str, make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Lesson:
    """Runs a lesson of the library at its own size or another, unless that was done: then it returns what came out."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # which the workers have in common
    return Lessons(folder / "lessons" / engine, lambda nodes: make_cluster(nodes=max(nodes, NODES)))


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path) -> Run:
    """Runs a script of the folder `scripts`, or one at a path, on the shared cluster or another one."""

    def run(script: str | Path, *args: object, on: Cluster | None = None, **options: Any) -> Result:
        said = _pick(options, "expect", "env", "timeout_s", "cold", "launcher", "folder")
        scenario = scenario_of(script, *args, extra=_pick(options, "faults"), **said)
        options.setdefault("nodes", None if on else 3)
        options.setdefault("runs", tmp_path / "runs")
        result = (on or cluster).run(scenario, **options)
        judge_again(result)
        return result

    return run


@pytest.fixture(scope="session")
def results() -> dict[str, Result]:
    """The runs that `run_once` has made."""
    return {}


@pytest.fixture
def run_once(engine: str, run: Run, results: dict[str, Result], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Like `run`, but once for all tests of a process that ask for the same run and only read its record."""

    def run_once(script: str, *args: object, **options: Any) -> Result:
        key = repr((engine, script, args, sorted(options.items())))
        if key not in results:
            results[key] = run(script, *args, runs=tmp_path_factory.mktemp("once"), **options)
        return results[key]

    return run_once


each_recorder = pytest.mark.parametrize(
    ("engine", "recorder"),
    [
        pytest.param("local", "python"),
        pytest.param("docker", "auto", marks=pytest.mark.docker),
        pytest.param("docker", "python", marks=[pytest.mark.docker, pytest.mark.long]),
    ],
    indirect=True,
)
"""The recorder that a run picks by itself: on Docker the compiled one of the image. And the other one there."""


@pytest.fixture
def recorder(request: pytest.FixtureRequest) -> str:
    """The recorder under test; see `each_recorder`."""
    return str(request.param)


@pytest.fixture
def traced(run: Run, recorder: str) -> Callable[..., tuple[Result, Trace]]:
    """Runs a script with a recorder; its result and what was recorded."""

    def traced(*words: object, **options: Any) -> tuple[Result, Trace]:
        result = run(*words, env={"LAB_RECORDER": recorder}, **options)
        return result, trace_of(result)

    return traced


@pytest.fixture
def traced_once(run_once: Run, recorder: str) -> Callable[..., tuple[Result, Trace]]:
    """Like `traced`, but by `run_once`."""

    def traced_once(*words: object, **options: Any) -> tuple[Result, Trace]:
        result = run_once(*words, env={"LAB_RECORDER": recorder}, **options)
        return result, trace_of(result)

    return traced_once


def trace_of(result: Result) -> Trace:
    assert result.path is not None
    return read_trace(Record(path=result.path))


def lines_of(result: Result, rank: int) -> list[dict[str, Any]]:
    assert result.path is not None
    path = result.path / "trace" / f"rank{rank}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def hang(run: Run) -> Run:
    """Runs a script that hangs; again with more time, if not all ranks were ready in a third of what they had.

    A rank says that by `note("ready_at", time.time())`: what it still has to do then takes no time to speak of.
    """

    def hang(*words: object, timeout_s: float = 2.0, **options: Any) -> Result:
        while True:
            began = time.time()
            result = run(*words, timeout_s=timeout_s, **options)
            ready = all(rank.notes.get("ready_at", math.inf) < began + timeout_s / 3 for rank in result.ranks)
            if ready or timeout_s > 30:
                return result
            timeout_s *= 3

    return hang


def judge_again(result: Result) -> None:
    """Judge a run from its record: the verdict has to be the one at its end."""
    assert result.path is not None, result.reason
    record = Record(path=result.path)
    again = judge_evidence(Evidence(facts=read_facts(record), record=record))
    unmet = [expectation.sentence() for expectation in result.expectations if not expectation.met]
    assert again.culprit == result.culprit
    assert again.reason in result.reason or result.reason.startswith(tuple(unmet)), result.reason


def scenario_of(script: str | Path, *args: object, expect: Expect | None = None, **more: Any) -> Scenario:
    more.setdefault("timeout_s", 150.0)
    scenario = scenario_from_script(SCRIPTS / script)
    return replace(scenario, args=tuple(str(arg) for arg in args), expect=expect or Expect(), **more)


def written(folder: Path, text: str) -> Path:
    """Write a script into a folder of its own; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.py").write_text(text)
    return folder / "main.py"


def _pick(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: options.pop(name) for name in names if name in options}


@dataclass(frozen=True)
class Traces:
    """What can be seen of a node from outside."""

    processes: frozenset[str]
    files: frozenset[str]
    ports: frozenset[str]


@pytest.fixture
def traces(engine: str) -> Callable[[Cluster, Node], Traces]:
    """Lists what is in a node."""
    return _traces_in_container if engine == "docker" else _traces_of_group


@pytest.fixture
def nothing_left(cluster: Cluster, traces: Callable[[Cluster, Node], Traces]) -> Iterator[None]:
    """Compares what the first three nodes hold after the test with what they held before it."""
    info = cluster.info()
    assert info is not None
    before = [traces(cluster, node) for node in info.nodes[:3]]
    yield
    assert [traces(cluster, node) for node in info.nodes[:3]] == before


def _traces_in_container(cluster: Cluster, node: Node) -> Traces:
    api = cluster.engine.connection.api  # type: ignore[attr-defined]
    lines: list[str] = []
    for _ in range(3):  # an engine under load may lose the output of a short command
        created = api.exec_create(node.handle, ["/bin/bash", "-c", _LOOK])
        lines = api.exec_start(created["Id"]).decode(errors="replace").splitlines()
        if lines:
            break
    assert any(line.startswith("process 1 ") for line in lines), lines
    kinds = ("process", "file", "port")
    seen = {kind: {line[len(kind) + 1 :] for line in lines if line.startswith(kind)} for kind in kinds}
    name_server = "0B00007F:"  # 127.0.0.11, which the engine puts into every container
    return Traces(
        frozenset(seen["process"]),
        frozenset(seen["file"]),
        frozenset(port for port in seen["port"] if not port.startswith(name_server)),
    )


def _traces_of_group(cluster: Cluster, node: Node) -> Traces:
    channel = LocalChannel(node)
    agent = channel.peer_pid()
    channel.close()
    folder = Path(node.handle).with_suffix("")
    address = bytes(map(int, node.address.split(".")))[::-1].hex().upper()
    listening = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return Traces(
        frozenset(map(str, [agent, *processes.list_descendants(agent)])),
        frozenset(str(path) for path in folder.rglob("*") if (folder / "kept") not in path.parents),
        frozenset(local for _, local, _, state, *_ in listening if state == "0A" and local.startswith(address)),
    )


@pytest.fixture
def alive(cluster: Cluster, engine: str) -> Callable[[Node, int], bool]:
    """Tells whether a process of a node, by its pid there, still lives."""

    def is_alive(node: Node, pid: int) -> bool:
        if engine == "local":
            return os.path.exists(f"/proc/{pid}")
        api = cluster.engine.connection.api  # type: ignore[attr-defined]
        created = api.exec_create(node.handle, ["test", "-e", f"/proc/{pid}"])
        api.exec_start(created["Id"])
        return bool(api.exec_inspect(created["Id"])["ExitCode"] == 0)

    return is_alive


@pytest.fixture
def usable(run: Run) -> Iterator[None]:
    """Runs a good script after a bad one: the cluster must be none the worse."""
    yield
    result = run("collectives.py", nodes=3)
    assert result.passed, result.reason


@pytest.fixture(scope="module")
def used(clusters: dict[str, Cluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cluster]]:
    """Clusters by name on which a good script runs after the last test of the module."""
    used: dict[str, Cluster] = {}
    yield used
    for cluster in used.values():
        result = cluster.run(scenario_of("collectives.py"), nodes=3, runs=tmp_path_factory.mktemp("usable"))
        assert result.passed, result.reason


@pytest.fixture
def usable_for_the_next(cluster: Cluster, used: dict[str, Cluster]) -> None:
    """The cluster must be none the worse for bad scripts: the module's next test runs on it, or else a good script."""
    used[cluster.name] = cluster
