"""A job hangs and is dumped; the scenario that `lab import fr --scenario` writes hangs in the same way when it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lab.cli.main import main
from tests.features.dumps.made import dump, entry, waiting, write

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300), pytest.mark.half]

JOB = """
import os, sys, threading, time, torch, torch.distributed as dist
folder = sys.argv[1]
rank = 3 if os.fork() else 2 if os.fork() else 1 if os.fork() else 0  # torch is imported once
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=4)

def dump():
    while not os.path.exists(f"{folder}/hangs"):
        time.sleep(0.05)
    time.sleep(2)
    data = torch._C._distributed_c10d._dump_fr_trace()
    with open(f"{folder}/dumps/rank_{rank}", "wb") as file:
        file.write(data)
    while len(os.listdir(f"{folder}/dumps")) < 4:
        time.sleep(0.05)
    if rank > 0:
        os.wait()
    os._exit(0)

threading.Thread(target=dump).start()
saves = dist.new_group([1, 3])
for step in range(30):
    dist.all_reduce(torch.ones(2000))
    dist.broadcast(torch.ones(7), 0)
    if step % 5 == 4 and rank in (1, 3):
        if (rank, step) == (3, 24):
            open(f"{folder}/hangs", "w").close()
            time.sleep(600)
        dist.barrier(group=saves)
"""


def write_scenario(dumps: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """Import dumps, and run the scenario; return what the verb says about it."""
    code = main(["import", "fr", "--scenario", str(folder), str(dumps), "--json"])
    answer = json.loads(capsys.readouterr().out)["reproduction"]
    assert (code, answer["differences"]) == (0, [])
    assert isinstance(answer, dict)
    return answer


def test_dumps_of_a_hung_job_become_a_scenario_that_hangs_at_the_same_barrier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "2000")
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "dumps").mkdir()
    subprocess.run([sys.executable, "job.py", str(tmp_path)], timeout=120, check=True)
    assert write_scenario(tmp_path / "dumps", tmp_path / "hang", capsys)["size"] == 4
    script = (tmp_path / "hang/script.py").read_text()
    assert "new_group([1, 3])" in script
    assert "    dist.barrier(group=group)  # hangs; job.py:29 of the job\n" in script


def test_a_job_of_64_ranks_hangs_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = [entry(number, ("nccl:all_reduce", "nccl:broadcast")[number % 2]) for number in range(20)]
    dumps = {rank: dump([*steps, *([] if rank == 40 else [waiting(20)])], range(64)) for rank in range(64)}
    answer = write_scenario(write(tmp_path / "dumps", dumps), tmp_path / "hang", capsys)
    assert (answer["size"], len(answer["ranks"])) == (64, 3)  # type: ignore[arg-type]
