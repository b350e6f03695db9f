"""What only Slurm does to a cluster: it lets it wait, and takes its machines away."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import Cluster, Result
from lab.cli.main import main
from lab.engine.ready import have_all_agents
from lab.engine.select import select_engine
from lab.errors import ClusterError
from lab.features.recording.world import import_worlds
from lab.features.slurm.command import query_slurm
from lab.features.slurm.create import shared_folder
from lab.features.slurm.engine import SlurmEngine, home_of, job_of
from tests.crash.conftest import wait_until
from tests.engines.conftest import written
from tests.golden import golden

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("person"), pytest.mark.half]
TURNS = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
for turn in range(20000):
    dist.all_reduce(torch.ones(1))
    if turn == 10 and dist.get_rank() == 0:
        open(os.environ["LAB_SHARED"] + "/going", "w").close()
    time.sleep(0.02)
"""
LATER = {"begin": "now+1hour"}
"""So that a job waits, and is in nobody's way meanwhile."""
Make = Callable[..., Cluster]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes clusters that a test may break; what is left of them is removed."""
    made: list[Cluster] = []

    def make(**shape: object) -> Cluster:
        made.append(Cluster(name=f"t-{uuid.uuid4().hex[:12]}", engine="slurm", **shape))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for cluster in made:
        cluster.down()
        assert states(cluster.name) == []
        assert not (home_of("slurm") / cluster.name).exists()
        assert not shared_folder(home_of("slurm"), cluster.name).exists()


@pytest.fixture
def spare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The machine that is there to be taken away: for one test at a time."""
    folder = tmp_path_factory.getbasetemp()
    with open((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "spare", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def states(cluster: str) -> list[str]:
    return query_slurm("squeue", "--noheader", f"--name=lab-{cluster}", "--format=%T").split()


def state_of(number: str) -> str:
    """The state of a job that runs or has ended."""
    return re.findall(r"JobState=(\w+)", query_slurm("scontrol", "show", "job", number))[0]


def job(cluster: Cluster) -> str:
    info = cluster.info()
    assert info is not None
    return job_of(info.nodes[0])


def run_until(cluster: Cluster, folder: Path, what: Callable[[], object]) -> Result:
    """Run something that goes on, and do something in its midst."""
    info = cluster.info()
    assert info is not None
    outcome: list[Result] = []
    script = written(folder / "turns", TURNS)
    going = threading.Thread(target=lambda: outcome.append(cluster.run(script, runs=folder / "runs")))
    going.start()
    wait_until((Path(info.shared) / "going").exists, "the run to go on", 60.0)
    what()
    going.join(60)
    return outcome[0]


def test_a_run_whose_job_is_cancelled_says_so(make: Make, tmp_path: Path):
    cluster = make(nodes=2)
    cluster.up()
    first = job(cluster)
    result = run_until(cluster, tmp_path, lambda: query_slurm("scancel", first))
    assert (result.verdict, golden(1) in result.reason) == ("failed", True), result


def test_when_what_holds_the_agents_is_killed_the_machines_are_given_back(make: Make):
    cluster = make(nodes=1)
    info, _ = cluster.up()
    assert states(cluster.name) == ["RUNNING"]
    os.kill(int((home_of("slurm") / cluster.name / SlurmEngine.life).read_text()), signal.SIGKILL)
    wait_until(lambda: states(cluster.name) == [], "Slurm to have its machine back", 30.0)
    assert not have_all_agents(cluster.engine, info)


def test_a_queue_is_left_when_its_time_is_over(make: Make):
    cluster = make(nodes=1, allocation={**LATER, "immediate": "1"})
    with pytest.raises(ClusterError, match=golden(1)):
        cluster.up()
    assert cluster.engine.nodeless() == []


def test_the_ranks_of_a_node_see_the_gpus_that_slurm_grants_it(make: Make, tmp_path: Path):
    cluster = make(nodes=2, gpus=2)
    cluster.up()
    script = written(tmp_path / "gpus", "import os\nprint(os.environ['CUDA_VISIBLE_DEVICES'])")
    for cold in (False, True):
        result = cluster.run(script, runs=tmp_path / "runs", cold=cold)
        assert [rank.log for rank in result.ranks] == ["0,1\n"] * 2, result.reason


def test_more_gpus_than_any_machine_has_are_refused_in_slurms_words(make: Make):
    cluster = make(nodes=1, gpus=3)
    with pytest.raises(ClusterError, match=golden(1)):
        cluster.up()
    assert cluster.engine.nodeless() == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_queue_is_left_when_the_command_that_waits_is_ended(how: signal.Signals):
    name = f"t-{uuid.uuid4().hex[:12]}"
    words = ["up", "--engine", "slurm", "--name", name, "--nodes", "1", "--allocation", f"begin={LATER['begin']}"]
    waiting = subprocess.Popen([sys.executable, "-m", "lab.cli.main", *words], start_new_session=True)
    try:
        wait_until(lambda: states(name) == ["PENDING"], "the job to wait", 30.0)
        waiting.send_signal(how)
        waiting.wait(30)
        wait_until(lambda: states(name) == [], "the job to leave the queue", 30.0)
    finally:
        waiting.kill()
        select_engine("slurm")[0].remove(name)


@pytest.mark.long
def test_a_run_whose_job_is_preempted_says_so_and_the_next_one_has_new_machines(
    make: Make, tmp_path: Path, spare: None
):
    cluster = make(nodes=1, allocation={"partition": "cheap"})
    cluster.up()
    urgent = ["salloc", "--no-shell", "--partition=urgent", "--exclusive", "--job-name=lab-urgent", "--immediate=30"]
    result = run_until(cluster, tmp_path, lambda: query_slurm(*urgent, deadline_s=60))
    query_slurm("scancel", "--name=lab-urgent")
    assert golden(1) in result.reason
    assert cluster.run(written(tmp_path / "one", "print(1)"), runs=tmp_path / "runs").passed


@pytest.mark.long
def test_a_run_whose_machine_fails_says_which_and_why(make: Make, tmp_path: Path, spare: None):
    cluster = make(nodes=1, allocation={"partition": "cheap"})
    cluster.up()
    down = ["scontrol", "update", "nodename=n3", "state=down", "reason=smoke"]
    result = run_until(cluster, tmp_path, lambda: query_slurm(*down))
    query_slurm("scontrol", "update", "nodename=n3", "state=resume")
    wait_until(
        lambda: set(query_slurm("sinfo", "--noheader", "--nodes=n3", "--format=%T").split()) == {"idle"}, "n3", 60.0
    )
    assert golden(1) in result.reason
    assert "smoke" in result.reason


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_run_whose_time_is_over_says_so(make: Make, tmp_path: Path):
    cluster = make(nodes=1, allocation={"time": "1"})
    cluster.up()
    number = job(cluster)

    def wait() -> None:
        wait_until(
            lambda: "RUNNING" not in query_slurm("scontrol", "show", "job", number), "the time to be over", 180.0
        )

    assert golden(1) in run_until(cluster, tmp_path, wait).reason


SKIPS = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
for turn in range(3):
    dist.all_reduce(torch.ones(1))
if sys.argv[1] == "raise" and dist.get_rank() == 2:
    raise ValueError("bad batch")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.sample(1)  # one script for both ends
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("word", "workers", "verdict", "culprit"), [("pass", 1, "passed", None), ("raise", 2, "failed", 2)]
)
def test_an_exported_job_runs_without_the_lab_and_its_records_become_one(
    word: str, workers: int, verdict: str, culprit: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # has lab and torchrun
    script = written(tmp_path / "job", SKIPS)
    job = ["export", "sbatch", str(script), "--nodes", "2", "--nproc-per-node", str(workers), "--timeout", "2m"]
    assert main([*job, "--record", str(tmp_path / "kept"), "-o", str(tmp_path / "job.sbatch"), "--", word]) == 0
    log = tmp_path / "job.log"
    number = query_slurm("sbatch", "--parsable", f"--output={log}", str(tmp_path / "job.sbatch")).strip()
    ended = ("COMPLETED", "FAILED")  # `sbatch --wait` looks every 2, 4, 6, 8, 10, and 12 s
    wait_until(lambda: state_of(number) in ended, "the job to end", 300.0)
    assert (state_of(number) == "COMPLETED") == (verdict == "passed"), log.read_text()

    (result,) = import_worlds(tmp_path / "kept", tmp_path / "runs", "job")
    assert (result.verdict, result.culprit and result.culprit.rank) == (verdict, culprit), result.reason
    assert {one.rank: one.node for one in result.ranks} == {
        rank: f"node{rank // workers}" for rank in range(2 * workers)
    }
