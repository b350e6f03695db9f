"""A worker that was forked from a warm agent cannot be told from a fresh interpreter; where it could, it is refused."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab import Cluster, LabError, Result
from lab.engine.agent_holder import agent_pid
from lab.node import warm
from lab.plan.cluster import Node
from tests.crash.conftest import wait_until
from tests.engines.conftest import Traces
from tests.golden import golden

pytestmark = pytest.mark.half

Run = Callable[..., Result]
Facts = dict[str, Any]
RUNS = 1000


def facts_of(result: Result, rank: int = 0) -> Facts:
    assert result.passed, result.reason + result.ranks[rank].log
    found = re.search(r"^FACTS (.*)$", result.ranks[rank].log, re.MULTILINE)
    assert found is not None, result.ranks[rank].log
    facts: Facts = json.loads(found[1])
    facts["flags"] = re.sub(r"utf8_mode=\d", "", facts.get("flags", ""))  # which the agent's locale may have brought
    return facts


@pytest.fixture
def both(run: Run) -> Callable[..., tuple[Facts, Facts]]:
    """What rank 0 says of itself, warm and cold."""

    def both(script: str, *args: object, **options: Any) -> tuple[Facts, Facts]:
        options.setdefault("nodes", 1)
        return facts_of(run(script, *args, **options)), facts_of(run(script, *args, cold=True, **options))

    return both


# -- the interpreter


@pytest.mark.local_first
def test_a_warm_interpreter_says_the_same_of_itself_as_a_cold_one(both: Callable[..., tuple[Facts, Facts]]) -> None:
    warm_facts, cold_facts = both("interpreter.py", "--epochs", "3")

    assert set(warm_facts.pop("warnings")) >= set(cold_facts.pop("warnings")), "the agent has imported more of torch"
    assert warm_facts == cold_facts
    assert warm_facts["argv"] == ["interpreter.py", "--epochs", "3"]
    assert warm_facts["threads"] == ["MainThread"]


@pytest.mark.local_first
def test_a_warm_interpreter_of_several_on_a_node_says_the_same_too(both: Callable[..., tuple[Facts, Facts]]) -> None:
    warm_facts, cold_facts = both("interpreter.py", nproc_per_node=2)

    assert set(warm_facts.pop("warnings")) >= set(cold_facts.pop("warnings"))
    assert warm_facts == cold_facts
    assert warm_facts["threads of torch"][0] == 1


# -- environment variables


EFFECTS: dict[str, tuple[str, object]] = {
    "OMP_NUM_THREADS": ("1", 1),
    "PYTHONPATH": ("/opt/of/the/test/a:/opt/of/the/test/b", ["/opt/of/the/test/a", "/opt/of/the/test/b"]),
    "TZ": ("XYZ-5", ["XYZ", 5]),
    "PYTHONWARNINGS": ("error::UserWarning", [["error::UserWarning"], True]),
    "PYTHONDONTWRITEBYTECODE": ("1", True),
    "TORCH_DISTRIBUTED_DEBUG": ("DETAIL", "DebugLevel.DETAIL"),
    "ANY_VARIABLE": ("ä value = with 'all' kinds of \"signs\"", "ä value = with 'all' kinds of \"signs\""),
}
"""Variable -> value, and what it brings about."""


@pytest.mark.local_first
@pytest.mark.parametrize(
    "names", [pytest.param([*EFFECTS], id="all"), *(pytest.param([name], marks=pytest.mark.long) for name in EFFECTS)]
)
def test_variables_of_the_scenario_have_the_effect_that_they_have_on_a_fresh_interpreter(
    both: Callable[..., tuple[Facts, Facts]], names: list[str]
) -> None:
    warm_facts, cold_facts = both("variables.py", env={name: EFFECTS[name][0] for name in names})

    assert warm_facts == cold_facts
    assert {name: warm_facts[name] for name in names} == {name: EFFECTS[name][1] for name in names}


@pytest.mark.long
@pytest.mark.local_first
def test_a_zone_that_is_named_is_that_of_a_fresh_interpreter(both: Callable[..., tuple[Facts, Facts]]) -> None:
    warm_facts, cold_facts = both("variables.py", env={"TZ": "Asia/Tokyo"})

    assert warm_facts == cold_facts


@pytest.mark.local_first
def test_modules_on_the_python_path_can_be_imported(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "only_on_the_python_path.py").write_text("VALUE = 42")
    (tmp_path / "main.py").write_text("from only_on_the_python_path import VALUE\nprint(VALUE)")

    result = run(tmp_path / "main.py", nodes=1, env={"PYTHONPATH": "more"})

    assert result.ranks[0].log == "42\n"


@pytest.mark.local_first
@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "LD_LIBRARY_PATH", "MALLOC_ARENA_MAX", "MKL_NUM_THREADS", "OMP_PROC_BIND", *warm.REFUSED]
)
def test_a_variable_that_a_fork_cannot_honour_is_refused_with_a_pointer_to_cold(run: Run, name: str) -> None:
    with pytest.raises(LabError) as refused:
        run("variables.py", nodes=1, env={name: "1"})

    assert name in refused.value.message
    assert "--cold" in refused.value.hint
    assert refused.value.exit_code == 2


@pytest.mark.long
def test_variables_that_a_fork_cannot_honour_are_accepted_cold(run: Run) -> None:
    env = {"PYTHONHASHSEED": "7", "MKL_NUM_THREADS": "1", "PYTHONOPTIMIZE": "1", "OMP_PROC_BIND": "true"}
    result = run("variables.py", nodes=1, env=env, cold=True)

    assert result.passed, result.reason


@pytest.mark.local_first
def test_the_hash_seed_of_a_cold_run_is_honoured(run: Run, tmp_path: Path) -> None:
    (tmp_path / "hashes.py").write_text("print(hash('a word'))")

    logs = {run(tmp_path / "hashes.py", nodes=2, env={"PYTHONHASHSEED": "7"}, cold=True).ranks[i].log for i in (0, 1)}

    assert len(logs) == 1


# -- random state


def test_numbers_of_generators_that_nobody_seeded_differ_between_ranks_and_between_runs(run: Run) -> None:
    first, second = (run("random_state.py", nodes=2, nproc_per_node=2) for _ in range(2))

    assert first.passed, first.reason + first.ranks[0].log
    for generator in ("random", "numpy", "torch"):
        drawn = [rank.notes[generator] for result in (first, second) for rank in result.ranks]
        assert len(set(drawn)) == 8, generator
    permutations = {tuple(rank.notes["permutation"]) for result in (first, second) for rank in result.ranks}
    assert len(permutations) > 1


@pytest.mark.local_first
def test_seeded_generators_give_what_they_give_in_a_fresh_interpreter(run: Run) -> None:
    import numpy as np  # only here: all processes that run tests import this module
    import torch

    random_here = random.Random(1234).random()
    numpy_here = np.random.RandomState(1234).rand()
    torch_here = torch.rand(1, generator=torch.Generator().manual_seed(1234)).item()

    for cold in (False, True):
        for rank in run("random_state.py", 1234, nodes=2, cold=cold).ranks:
            assert rank.notes["random"] == random_here
            assert rank.notes["numpy"] == numpy_here
            assert rank.notes["torch"] == torch_here


@pytest.mark.local_first
def test_what_a_new_generator_starts_with_is_torch_s_own_default(run: Run) -> None:
    import torch

    notes = {run("random_state.py", nodes=1, cold=cold).ranks[0].notes["generator"] for cold in (False, True)}

    assert notes == {torch.Generator().initial_seed()}


# -- what runs have in common


@pytest.mark.local_first
def test_what_a_run_does_to_modules_is_not_seen_by_the_next(run: Run) -> None:
    first, second = (run("module_state.py", nodes=2, nproc_per_node=2) for _ in range(2))

    for result in (first, second):
        assert result.passed, result.reason + result.ranks[0].log
        for rank in result.ranks:
            assert rank.notes["before"] == [False, False, False]
            assert rank.notes["dtype before"] == "torch.float32"
            assert rank.notes["threads before"] == 1


@pytest.mark.local_first
def test_a_module_beside_the_script_that_changes_between_two_runs_is_read_again(run: Run, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import beside\nprint(beside.VALUE)")
    logs = []
    for value in (1, 2):
        (tmp_path / "beside.py").write_text(f"VALUE = {value}")
        logs.append(run(tmp_path / "main.py", nodes=1).ranks[0].log)

    assert logs == ["1\n", "2\n"]


@pytest.mark.local_first
def test_a_script_that_changes_between_two_runs_shows_its_new_lines_in_a_traceback(run: Run, tmp_path: Path) -> None:
    for text in ("raise ValueError('old')", "\nraise ValueError('new')"):
        (tmp_path / "main.py").write_text(text)
        result = run(tmp_path / "main.py", nodes=1)

    assert result.reason == golden(1)
    assert "raise ValueError('new')" in result.ranks[0].traceback


@pytest.mark.local_first
def test_a_module_named_lab_beside_the_script_is_the_script_s_own(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lab.py").write_text("WHOSE = 'my own'")
    (tmp_path / "main.py").write_text("import lab\nprint(lab.WHOSE)")

    for cold in (False, True):
        assert run(tmp_path / "main.py", nodes=1, cold=cold).ranks[0].log == "my own\n"


@pytest.mark.local_first
def test_modules_beside_the_script_may_have_names_that_the_agent_has_imported(run: Run, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("VALUE = 1")
    (tmp_path / "worker.py").write_text("VALUE = 2")
    (tmp_path / "main.py").write_text("import agent, worker\nprint(agent.VALUE + worker.VALUE)")

    assert run(tmp_path / "main.py", nodes=1).ranks[0].log == "3\n"


@pytest.mark.trains
@pytest.mark.local_first
def test_parts_of_torch_that_an_agent_imported_for_an_earlier_run_change_nothing_for_the_next(
    run: Run, engine: str, tmp_path: Path
) -> None:
    text = "import json, os, tempfile\nprint(json.dumps([sorted(os.environ), tempfile.gettempdir()]))"
    (tmp_path / "look.py").write_text(text)
    before = json.loads(run(tmp_path / "look.py", nodes=1).ranks[0].log)
    assert run("ddp.py", nodes=2).passed
    after = json.loads(run(tmp_path / "look.py", nodes=1).ranks[0].log)

    assert after == before
    assert "TORCHINDUCTOR_CACHE_DIR" not in after[0]
    assert after[1].endswith("/tmp" if engine == "docker" else "/node0/run/home")


# -- what is left after a run


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("cold", [False, pytest.param(True, marks=pytest.mark.long)], ids=["warm", "cold"])
def test_after_a_run_no_process_file_or_listening_port_remains_in_a_node(run: Run, cold: bool) -> None:
    assert run("collectives.py", nodes=3, nproc_per_node=2, cold=cold).passed


def test_an_agent_that_has_forked_workers_has_one_thread(run: Run, cluster: Cluster, engine: str) -> None:
    assert run("children.py", "differentiates", nodes=2).passed

    info = cluster.info()
    assert info is not None
    for node in info.nodes[:2]:  # the threads of NumPy's OpenBLAS end at the first fork
        assert agent_of(cluster, node, engine)["threads"] == 1


def agent_of(cluster: Cluster, node: Node, engine: str) -> dict[str, int]:
    """How many threads and descriptors the agent of a node has; locally, with those of the process that forked it."""
    if engine == "local":
        agent = agent_pid(node)
        wait_until(lambda: sockets(agent) == 1, "the agent to have no client")
        parent = Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1]
        return {
            "threads": len(os.listdir(f"/proc/{agent}/task")),
            "descriptors": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in (agent, parent)),
        }
    api = cluster.engine.connection.api  # type: ignore[attr-defined]
    said = api.exec_start(api.exec_create(node.handle, ["/bin/bash", "-c", LOOK_AT_AGENT])["Id"]).decode()
    return {name: int(count) for name, count in (line.split() for line in said.splitlines())}


def sockets(pid: int) -> int:
    """How many descriptors of a process are sockets: that of an agent without clients is the one that it listens at."""
    return sum(path.is_socket() for path in Path(f"/proc/{pid}/fd").iterdir())


LOOK_AT_AGENT = r"""
for stat in /proc/[0-9]*/stat; do
  read -r line <"$stat" || continue
  read -r _ parent _ <<<"${line##*) }"
  [ "$parent" = 1 ] && agent=${line%% *}  # the agent takes what loses its parent
done 2>/dev/null
echo threads $(ls /proc/$agent/task | wc -l)
echo descriptors $(ls /proc/$agent/fd | wc -l)
"""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_nothing_of_a_warm_cluster_grows_over_1000_runs(
    run: Run, cluster: Cluster, engine: str, traces: Callable[[Cluster, Node], Traces]
) -> None:
    info = cluster.info()
    assert info is not None

    def counts() -> dict[str, int]:
        found = {f"own {what}": len(os.listdir(f"/proc/self/{what}")) for what in ("fd", "task")}
        for node in info.nodes[:2]:
            seen = vars(traces(cluster, node))
            found.update({f"{node.name} {what}": len(each) for what, each in seen.items()})
            found.update({f"{node.name} {what}": count for what, count in agent_of(cluster, node, engine).items()})
        return found

    def megabytes() -> list[float]:
        return [(cluster.engine.memory_bytes(node) or 0) / 2**20 for node in info.nodes[:2]]

    seen: dict[int, tuple[list[float], dict[str, int]]] = {}

    def nothing_more() -> bool:
        return all(seen[1][1][what] >= count for what, count in counts().items())

    for count in range(1, RUNS + 1):
        assert run("collectives.py", nodes=2).passed
        if count in (1, 100, 500, RUNS):
            seen[count] = (megabytes(), counts())
            print(f"{engine}, after {count} runs: {seen[count]}")
            wait_until(nothing_more, f"no more than after the first run: {seen}")

    for early, late in zip(seen[100][0], seen[RUNS][0], strict=True):
        assert 10 < late < early + 3, seen
