"""`lab record` runs real commands on this machine and judges the worlds of ranks below them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.features.recording.session import SessionSupervisor, _Test
from lab.features.recording.verb import name_of
from lab.features.recording.world import World
from lab.node import processes
from lab.node.messages.agent import Exited, Joined, number_of
from lab.polling import poll_until
from tests.golden import golden
from tests.short import SHORT

pytestmark = pytest.mark.half

WORLDS = """
import os, socket, sys, time
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, port, mode):
    if mode == "absent" and rank == 1:
        while socket.socket().connect_ex(("127.0.0.1", port)):  # until rank 0 waits at its store
            time.sleep(0.05)
        raise OSError("no data")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    if mode == "raise" and rank == 1:
        raise ValueError("bad batch")
    if mode == "kill" and rank == 1:
        os.kill(os.getpid(), 9)
    if mode == "compute" and rank == 1:
        end = time.monotonic() + 5
        while time.monotonic() < end:
            pass
    if mode == "hang" and rank == 1:
        time.sleep(600)
    dist.all_reduce(tensor)
    dist.destroy_process_group()


if __name__ == "__main__":
    for mode in sys.argv[2:]:
        try:
            mp.start_processes(work, (int(sys.argv[1]), mode), 2, start_method="fork")
        except Exception:
            print(mode, "failed", flush=True)
"""


def lab(*words: str) -> list[str]:
    return [sys.executable, "-m", "lab.cli.main", *words]


@pytest.fixture
def cache() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=SHORT) as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for the command, whose Python finds this lab and caches nothing elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return tmp_path


@pytest.fixture
def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def record(*words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(lab("record", *options, "--", *words), capture_output=True, text=True)


def printed(ended: subprocess.CompletedProcess[str]) -> list[str]:
    """What a command printed, without the lines in which gloo of torch 2.8 counts peers."""
    return [line for line in ended.stdout.splitlines() if not line.startswith("[Gloo]")]


@pytest.mark.sample(1)  # the wrappers are the same for both recorders
@pytest.mark.parametrize("recorder", ["auto", "python"])
def test_a_traceback_has_no_frames_of_the_recorder(
    home: Path, free_port: int, recorder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One error comes from C++, and one from a model, below the wrappers of DDP."""
    body = """    if mode == "call":
        dist.all_reduce(torch.ones(2).to_sparse(), op=dist.ReduceOp.MAX)
    if mode == "model":
        torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))(torch.ones(3))
"""
    script = WORLDS.replace('    if mode == "raise"', body + '    if mode == "raise"', 1)
    script = script.replace(
        "        except Exception:\n", "        except Exception as error:\n            print(error)\n"
    )
    (home / "worlds.py").write_text(script)
    monkeypatch.setenv("LAB_RECORDER", recorder)
    done = record(sys.executable, "worlds.py", str(free_port), "call", "model")

    frames = re.findall(r'File "(.*)", line', done.stdout)
    assert "only works with ReduceOp.SUM" in done.stdout
    assert "mat1 and mat2" in done.stdout
    assert frames
    assert [frame for frame in frames if "labnode" in frame or "importlib_bootstrap" in frame] == []


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").is_symlink() and bool(os.path.exists(f"/proc/{pid}/exe"))


def results(home: Path) -> list[dict[str, Any]]:
    """Return the results of all runs, the earliest first."""
    runs = [path.parent for path in (home / ".lab" / "runs").glob("*/result.json")]
    in_order = sorted(runs, key=lambda run: json.loads((run / "plan.json").read_text())["began"])
    return [json.loads((run / "result.json").read_text()) for run in in_order]


def test_a_command_without_ranks_keeps_its_output_and_exit_code_and_leaves_no_record(home: Path) -> None:
    ended = record("sh", "-c", "cat; echo out; echo err >&2; exit 7")

    assert (ended.returncode, ended.stdout) == (7, "out\n")
    assert ended.stderr.splitlines()[0] == "err"
    assert len(ended.stderr.splitlines()) == 2
    assert not (home / ".lab").exists()


def test_a_command_that_a_signal_ends_ends_the_lab_by_that_signal() -> None:
    assert record("sh", "-c", "kill -KILL $$").returncode == -signal.SIGKILL
    assert record("sh", "-c", "kill -SEGV $$").returncode == -signal.SIGSEGV


def test_a_command_that_cannot_start_has_the_exit_code_of_a_shell(home: Path) -> None:
    (home / "data").write_text("")

    assert record("no-such-program").returncode == 127
    without_dashes = subprocess.run(lab("record", "train.py"), capture_output=True, text=True)
    assert (without_dashes.returncode, "lab record -- torchrun train.py" in without_dashes.stderr) == (127, True)
    assert record("./data").returncode == 126
    assert subprocess.run(lab("record"), capture_output=True).returncode == 2


def test_a_signal_for_the_lab_reaches_the_command(home: Path) -> None:
    words = ["sh", "-c", "trap 'echo told; exit 5' TERM; touch ready; while :; do sleep 0.05; done"]
    with subprocess.Popen(lab("record", "--", *words), stdout=subprocess.PIPE, text=True) as running:
        poll_until((home / "ready").exists, 30)
        running.send_signal(signal.SIGTERM)
        out, _ = running.communicate(timeout=30)

    assert (out, running.returncode) == ("told\n", 5)


@pytest.mark.sample(1)  # both are the same kill of one process and the same look at what is left
@pytest.mark.parametrize("victim", ["lab", "launcher"])
def test_a_kill_leaves_what_the_command_alone_leaves(
    home: Path, cache: Path, victim: str, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command alone has no lab that can be killed; then its launcher is."""
    pytest.importorskip("torch")
    monkeypatch.setenv("TMPDIR", str(home / "temp"))
    script = WORLDS.replace("time.sleep(600)", "open(f'{os.getpid()}.pid', 'w').close(); time.sleep(600)")
    (home / "worlds.py").write_text(script)
    words = [sys.executable, "worlds.py", str(free_port), "hang"]

    def kill_one(words: list[str], *, recorded: bool) -> tuple[int, int, list[str]]:
        """Return the exit code, and what is left: how many processes, and which temporary files."""
        (home / "temp").mkdir()
        with subprocess.Popen(words, stderr=subprocess.DEVNULL) as running:
            poll_until(lambda: [*home.glob("*.pid")], 60)
            (hanging,) = home.glob("*.pid")
            hanging.unlink()
            below = processes.list_descendants(running.pid)
            launcher = below[0] if recorded else running.pid
            os.kill(running.pid if victim == "lab" else launcher, signal.SIGKILL)
            code = running.wait(30)
        poll_until(lambda: not any(map(is_running, below)), 20)  # PyTorch ends the ranks of a launcher that was killed
        left = [*filter(is_running, below)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        files = sorted(re.sub(r"-\w+\.", "-*.", path.name) for path in (home / "temp").iterdir())
        shutil.rmtree(home / "temp")
        return code, len(left), files

    recorded, alone = kill_one(lab("record", "--", *words), recorded=True), kill_one(words, recorded=False)

    assert recorded == alone
    assert not [*cache.rglob("*.socket")]


def test_a_python_without_torch_finds_its_own_sitecustomize(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "own").mkdir()
    (home / "own" / "sitecustomize.py").write_text("print('own')\n")
    monkeypatch.setenv("PYTHONPATH", f"{home / 'own'}{os.pathsep}{os.environ['PYTHONPATH']}")

    assert "own\nrun\n" in record(sys.executable, "-c", "print('run')").stdout


def test_a_note_is_printed_once_the_lab_has_ended(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_NOTE_SOCKET", str(home / "gone"))
    ended = subprocess.run([sys.executable, "-c", "import lab; lab.note('loss', 2)"], capture_output=True, text=True)

    assert (ended.returncode, ended.stdout) == (0, "note rank=0 loss=2\n")


def test_worlds_of_one_command_are_judged_apart(home: Path, free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    (home / "worlds.py").write_text(WORLDS)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(home.parent))

    ended = record(sys.executable, "worlds.py", str(free_port), "fine", "raise", "absent", "fine")

    assert ended.returncode == 0
    assert printed(ended) == ["raise failed", "absent failed"]
    annotated = [line for line in ended.stderr.splitlines() if line.startswith("::")]
    assert [line.rpartition("::")[0] for line in annotated] == [
        f"::error file={home.name}/worlds.py,line=18,title=lab%3A failed in worlds"
    ]
    fine, raised, absent, again = results(home)
    assert [one["verdict"] for one in (fine, raised, absent, again)] == ["passed", "failed", "failed", "passed"]
    assert (raised["culprit"]["rank"], raised["culprit"]["error"]) == (
        1,
        "raised ValueError: bad batch at worlds.py:18",
    )
    assert absent["culprit"]["rank"] == 1
    explained = subprocess.run(lab("explain", raised["run"], "--json"), capture_output=True, text=True)
    assert json.loads(explained.stdout)["sentence"] == raised["reason"]


def test_a_recorder_that_was_not_built_is_reported_and_nothing_is_said_of_calls(
    home: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    leaves = '"leave" and rank == 1:\n        os._exit(0)'
    (home / "worlds.py").write_text(WORLDS.replace('"kill" and rank == 1:\n        os.kill(os.getpid(), 9)', leaves))
    monkeypatch.setenv("LAB_RECORDER", "compiled")

    record(sys.executable, "worlds.py", str(free_port), "fine", "leave")

    fine, left = results(home)
    assert (fine["verdict"], left["verdict"]) == ("passed", "failed")
    for one in (fine, left):
        assert re.search(golden(1), one["reason"])
    assert left["reason"].startswith(golden(2))


@pytest.mark.parametrize("call", ["sys.exit(0)", "os._exit(0)"])
def test_a_rank_that_exits_has_left_at_that_line(home: Path, free_port: int, call: str) -> None:
    pytest.importorskip("torch")
    leaves = f'"leave" and rank == 1:\n        {call}'
    (home / "worlds.py").write_text(WORLDS.replace('"kill" and rank == 1:\n        os.kill(os.getpid(), 9)', leaves))

    record(sys.executable, "worlds.py", str(free_port), "leave")

    [left] = results(home)
    assert (left["culprit"]["rank"], left["findings"][0]["kind"]) == (1, "left_early")
    assert "worlds.py:20" in left["reason"]


def test_a_command_that_removes_its_record_goes_on(home: Path, free_port: int) -> None:
    pytest.importorskip("torch")
    remove = '"remove" and rank == 1:\n        __import__("shutil").rmtree(".lab"); open(".lab", "w").close()'
    (home / "worlds.py").write_text(WORLDS.replace('"hang" and rank == 1:\n        time.sleep(600)', remove))

    ended = record(sys.executable, "worlds.py", str(free_port), "remove", "raise")

    assert ended.returncode == 0
    assert printed(ended) == ["raise failed"]
    assert str(home / ".lab") in ended.stderr


def test_a_world_that_stands_still_is_stopped_alone(home: Path, free_port: int) -> None:
    pytest.importorskip("torch")
    (home / "worlds.py").write_text(WORLDS)

    ended = record(
        sys.executable, "worlds.py", str(free_port), "hang", "fine", options=("--stall", "2s", "--on-stall", "stop")
    )

    assert ended.returncode == 4
    assert printed(ended) == ["hang failed"]
    hung, fine = results(home)
    assert (hung["verdict"], fine["verdict"]) == ("hung", "passed")
    assert hung["culprit"]["rank"] == 1
    assert all(rank["stopped"] for rank in hung["ranks"])
    assert [rank["local_rank"] for rank in hung["ranks"]] == [0, 1]
    assert 'worlds.py", line 26' in hung["ranks"][1]["stack"]


def test_a_rank_that_is_not_on_record_is_not_accused(home: Path, free_port: int) -> None:
    pytest.importorskip("torch")
    (home / "worlds.py").write_text(WORLDS)
    (home / "one.py").write_text(
        "import sys\nfrom worlds import work\nwork(int(sys.argv[1]), int(sys.argv[2]), 'hang')\n"
    )
    with subprocess.Popen([sys.executable, "one.py", "1", str(free_port)]) as elsewhere:
        try:
            options = ("--stall", "2s", "--on-stall", "stop")
            ended = record(sys.executable, "one.py", "0", str(free_port), options=options)
        finally:
            elsewhere.kill()

    assert ended.returncode == 4
    (hung,) = results(home)
    assert (hung["verdict"], hung["culprit"]) == ("hung", None)
    assert "never entered" not in hung["reason"]
    assert hung["reason"].endswith("rank 0 was at worlds.py:27; only rank 0 of 2 ranks are on record")


def test_a_rank_that_computes_for_long_is_reported_and_not_stopped(home: Path, free_port: int) -> None:
    pytest.importorskip("torch")
    (home / "worlds.py").write_text(WORLDS)

    ended = record(
        sys.executable, "worlds.py", str(free_port), "compute", options=("--stall", "2s", "--on-stall", "stop")
    )

    assert ended.returncode == 0
    assert "while rank 1 computed: rank 1 was at worlds.py:2" in ended.stderr
    assert [one["verdict"] for one in results(home)] == ["passed"]


POOL = """
import sys, threading, time
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.testing._internal.distributed.multi_threaded_pg import _install_threaded_pg


def work(rank, file, kinds):
    for nth, kind in enumerate(kinds):
        mine = (rank + nth) % 2
        dist.init_process_group("gloo", init_method=f"file://{file}-{nth}", rank=mine, world_size=2)
        dist.all_reduce(torch.ones(2 + (mine if kind == "shape" else 0) * 1000))
        dist.destroy_process_group()


def thread(rank, store):
    dist.init_process_group("threaded", rank=rank, world_size=2, store=store)
    dist.all_reduce(torch.ones(2))
    if rank == 1:
        time.sleep(600)
    dist.all_reduce(torch.ones(2))


if __name__ == "__main__":
    if sys.argv[2] == "threads":
        torch._C._distributed_c10d._set_thread_isolation_mode(True)
        _install_threaded_pg()
        store = dist.HashStore()
        threads = [threading.Thread(target=thread, args=(rank, store)) for rank in range(2)]
        [one.start() for one in threads]
        [one.join() for one in threads]
    else:
        mp.start_processes(work, (sys.argv[1], sys.argv[2:]), 2, start_method="fork")
"""


def test_a_process_is_a_rank_of_one_world_after_the_other(home: Path) -> None:
    pytest.importorskip("torch")
    (home / "pool.py").write_text(POOL)

    ended = record(sys.executable, "pool.py", str(home / "meeting"), "fine", "fine", "shape")

    assert ended.returncode == 1
    *fine, shape = results(home)
    assert [one["verdict"] for one in fine] == ["passed", "passed"]
    assert shape["verdict"] == "failed"
    assert shape["findings"][0]["kind"] in ("shape", "failed")  # mp ends a rank that has not begun its call yet


def test_threads_are_ranks(home: Path) -> None:
    pytest.importorskip("torch")
    (home / "pool.py").write_text(POOL)

    ended = record(sys.executable, "pool.py", "", "threads", options=("--stall", "3s", "--on-stall", "stop"))

    assert ended.returncode == 4
    (hung,) = results(home)
    assert (hung["verdict"], hung["culprit"]["rank"]) == ("hung", 1)
    assert "rank 1 was at pool.py:21; rank 0 waited in all_reduce at pool.py:22" in hung["reason"]


def test_ranks_of_torchrun_are_recorded(home: Path) -> None:
    pytest.importorskip("torch")
    script = WORLDS.partition("if __name__")[0] + (
        'work(int(os.environ["RANK"]), os.environ["MASTER_PORT"], "raise")\n'
    )
    (home / "train.py").write_text(script)

    ended = record(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "train.py")

    (result,) = results(home)
    assert ended.returncode == 1
    assert (result["scenario"], result["verdict"], result["culprit"]["rank"]) == ("run", "failed", 1)
    assert "bad batch" in result["reason"]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["torchrun", "--nproc-per-node", "2", "train.py"], "torchrun"),
        (["/usr/bin/python3.11", "-u", "train.py"], "train"),
        (["python", "-m", "torch.distributed.run", "train.py"], "run"),
        (["python", "-m", "pytest", "tests"], "pytest"),
        (["bash", "./launch.sh"], "launch"),
        (["make", "test"], "make"),
        (["sh"], "sh"),
    ],
)
def test_runs_are_named_by_the_command(words: list[str], name: str) -> None:
    assert name_of(words) == name


def joined(rank: int, *, size: int = 2, meeting: str = "29500", pid: int = 0) -> Joined:
    return Joined(
        number_of(0, rank), time.time(), pid=pid or os.getpid(), claimed_rank=rank, world_size=size, meeting=meeting
    )


def world_of_one(folder: Path) -> World:
    world = World(folder / "runs", "test", folder, joined(0))
    world.add(joined(0))
    return world


def test_a_process_belongs_to_the_ranks_that_it_can_meet(home: Path) -> None:
    world = world_of_one(home)

    assert world.accepts(joined(1))
    assert world.accepts(joined(1, meeting=""))
    assert not world.accepts(joined(0))
    assert not world.accepts(joined(1, size=4))
    assert not world.accepts(joined(1, meeting="29501"))


def test_a_process_that_starts_after_all_ranks_have_ended_belongs_to_others(home: Path) -> None:
    world = world_of_one(home)
    world.add_exit(Exited(0, time.time() - 1, code=1))
    with subprocess.Popen(["sleep", "60"]) as later:
        accepted = world.accepts(joined(1)), world.accepts(joined(1, pid=later.pid))
        later.kill()

    assert accepted == (True, False)


def test_ranks_that_compute_have_the_whole_patience_in_each_test_of_an_old_world(home: Path) -> None:
    pid, now = os.getpid(), time.monotonic()
    supervisor = SessionSupervisor(pid, str(home), str(home / "work"), str(home / "runs"), 10.0, -1, -1, -1)
    world, test = world_of_one(home), _Test()
    world.add(joined(1))
    world.progressed, test.began, test.progressed = now - 100, now - 12, now - 12
    test.active[world], test.cpu_s = now - 100, processes.read_cpu_s([pid])
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        ends = [supervisor._stands_still(world, test, now + later) for later in (0, 20)]
        busy.kill()

    assert ends == [False, True]


def test_a_recording_can_be_watched_and_explained_while_its_command_runs(home: Path) -> None:
    pytest.importorskip("torch")
    script = WORLDS.partition("if __name__")[0].replace("time.sleep(600)", 'open("in", "w")\n        os.open("go", 0)')
    (home / "train.py").write_text(f'{script}work(int(os.environ["RANK"]), os.environ["MASTER_PORT"], "hang")\n')
    os.mkfifo(home / "go")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "train.py"]
    with subprocess.Popen(lab("record", "--", *torchrun), stderr=subprocess.DEVNULL) as recording:
        poll_until((home / "in").exists, 60)
        watching = subprocess.Popen(lab("watch", "--json"), stdout=subprocess.PIPE, text=True)
        assert watching.stdout is not None
        events = iter(json.loads(line) for line in watching.stdout)
        waits = next(event for event in events if event["event"] == "waits")
        explained = json.loads(subprocess.run(lab("explain", "--json"), capture_output=True, text=True).stdout)
        shown = subprocess.run(lab("show", "--json"), capture_output=True, text=True)
        page = subprocess.run(lab("report", "-o", "page.html"), capture_output=True, text=True)
        (home / "go").write_text("")
        verdict = [*events][-1]

    assert (recording.returncode, watching.wait()) == (0, 0)
    assert (waits["rank"], verdict["event"], verdict["verdict"]) == (0, "verdict", "passed")
    assert explained["findings"][0]["ranks"] == [1]
    assert explained["findings"][0]["seconds"] > 0.5
    assert (explained["verdict"], explained["problems"]) == ("running", [])
    assert (shown.returncode, page.returncode) == (0, 0)
    assert (home / "page.html").exists()
