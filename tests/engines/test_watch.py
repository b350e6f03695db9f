"""Runs that are watched while they go on: step by step, and as they are."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lab import Cluster
from lab.diagnosis.explain import explain_run
from lab.features.watch.now import Follower, Now, Watched
from lab.features.watch.verb import follow_run
from lab.record.read import Record
from lab.record.result import Result
from lab.trace.read import read_trace
from tests.golden import golden

DEADLINE_S = 120.0
STEPS = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for number in range(3):
    held = torch.full((2,), rank + 10.0 * number)
    dist.all_reduce(held)
if rank == 0:
    dist.send(held, 1)
if rank == 1:
    dist.recv(held, 0)
dist.barrier()
"""


class Hand:
    """Presses a key whenever something is held; remembers what was held then."""

    def __init__(self, stepper: Watched) -> None:
        self.stepper = stepper
        self.pressed: list[str] = []
        self.seen: list[Now] = []

    def show(self, now: Now, follower: Follower) -> None:
        self.seen.append(now)
        told = " ".join(f"{rank.activity}" for rank in now.ranks if rank.state == "held")
        if now.next and "once the others" not in now.next and self.pressed[-1:] != [f"{now.next}: {told}"]:
            self.pressed.append(f"{now.next}: {told}")
            self.stepper.press()

    def close(self) -> None:
        pass


def watch(cluster: Cluster, script: Path, hand: Hand, watched: Watched, **options: Any) -> Result:
    ended = threading.Event()
    watcher = threading.Thread(target=follow_run, args=(lambda: watched.path, [hand], watched, None, ended))
    watcher.start()
    try:
        return cluster.run(script, companions=(watched,), runs=script.parent / "runs", **options)
    finally:
        ended.set()
        watcher.join(DEADLINE_S)


@pytest.fixture
def watched() -> Watched:
    return Watched(step=True)


@pytest.mark.local_first
@pytest.mark.parametrize("cold", [False, pytest.param(True, marks=pytest.mark.long)], ids=["warm", "cold"])
def test_one_key_press_is_one_step(cluster: Cluster, tmp_path: Path, watched: Watched, cold: bool) -> None:
    script = tmp_path / "steps.py"
    script.write_text(STEPS)
    hand = Hand(watched)
    result = watch(cluster, script, hand, watched, nodes=3, cold=cold, timeout_s=DEADLINE_S)
    assert result.passed, result.reason
    pressed = [told.partition(":")[0] for told in hand.pressed]
    assert pressed[:3] == ["all_reduce #1", "all_reduce #2", "all_reduce #3"]
    assert pressed[3] in ("send 0 → 1", "send 0 → 1 and barrier #4")
    assert pressed[-1] == "barrier #4"
    trace = read_trace(Record(path=result.path))
    assert trace.problems == []
    assert {rank.recorder for rank in trace.ranks.values()} == {"python"}
    assert [call.op for call in trace.ranks[2].calls] == ["all_reduce"] * 3 + ["barrier"]
    explained = explain_run(Record(path=result.path)).findings
    assert [finding.kind for finding in explained] == ["account"]
    assert golden(1) in explained[0].sentence


@pytest.mark.long
def test_time_stands_still_while_ranks_are_held(cluster: Cluster, tmp_path: Path, watched: Watched) -> None:
    script = tmp_path / "steps.py"
    script.write_text(STEPS)
    limit_s = 4.0

    class Slow(Hand):
        """Whoever takes longer than the run may, once."""

        def show(self, now: Now, follower: Follower) -> None:
            if watched.held_s > limit_s + 1 or not now.next.startswith("all_reduce #1"):
                super().show(now, follower)

    began = time.monotonic()
    result = watch(cluster, script, Slow(watched), watched, nodes=3, timeout_s=limit_s)
    assert result.passed, result.reason
    assert time.monotonic() - began > limit_s


@pytest.mark.local_first
def test_whoever_runs_on_holds_nobody(cluster: Cluster, tmp_path: Path, watched: Watched) -> None:
    script = tmp_path / "steps.py"
    script.write_text(STEPS)

    class Leaves(Hand):
        """Runs on as soon as something is held."""

        def show(self, now: Now, follower: Follower) -> None:
            if now.next:
                watched.run_on()

    result = watch(cluster, script, Leaves(watched), watched, nodes=3, timeout_s=DEADLINE_S)
    assert result.passed, result.reason


@pytest.mark.local_first
def test_a_deadlock_is_let_go_into_and_then_time_runs(cluster: Cluster, tmp_path: Path, watched: Watched) -> None:
    script = tmp_path / "stuck.py"
    script.write_text(STEPS.partition("for")[0] + "dist.recv(torch.zeros(1), (rank - 1) % 3)\n")
    hand = Hand(watched)
    result = watch(cluster, script, hand, watched, nodes=3, timeout_s=2.0)
    assert result.verdict == "hung"
    assert [told.partition(":")[0] for told in hand.pressed] == [golden(1)]
    assert (0,) in [rank.waits_for for now in hand.seen for rank in now.ranks if rank.rank == 1]


def in_terminal(words: list[str], keys: dict[str, str], folder: Path) -> tuple[int, str]:
    """Exit code and screen of a command in a terminal, where each key is pressed once when its text is seen."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execv(sys.executable, [sys.executable, "-m", "lab.cli.main", *words])
    shown, position, waiting = "", 0, list(keys.items())
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        shown += data.decode("utf-8", "replace")
        while waiting and waiting[0][0] in shown[position:]:
            text, key = waiting.pop(0)
            position = shown.index(text, position) + len(text)
            os.write(terminal, key.encode())
    else:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    return code, shown


@pytest.mark.local_first
def test_keys_of_a_terminal_let_steps_go(cluster: Cluster, engine: str, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    words = ["watch", "steps.py", "--step", "--nodes", "3", "--name", cluster.name, "--engine", engine]
    keys = {"space: all_reduce #1": " ", "space: all_reduce #2": "\r", "space: all_reduce #3": "c"}
    code, shown = in_terminal(words, keys, tmp_path)
    assert code == 0, shown
    assert "held before all_reduce #3" in shown
    assert "passed" in shown.rpartition("held before")[2]


@pytest.mark.local_first
def test_where_nobody_can_press_a_key_nobody_is_held(cluster: Cluster, engine: str, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    words = ["watch", "steps.py", "--step", "--nodes", "3", "--name", cluster.name, "--engine", engine]
    command = [sys.executable, "-m", "lab.cli.main", *words]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, cwd=tmp_path, timeout=DEADLINE_S)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.local_first
def test_ctrl_c_ends_a_run_that_is_held(cluster: Cluster, engine: str, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    words = ["watch", "steps.py", "--step", "--nodes", "3", "--name", cluster.name, "--engine", engine]
    code, shown = in_terminal(words, {"space: all_reduce #1": "\x03"}, tmp_path)
    assert code == 130, shown
    assert cluster.run(tmp_path / "steps.py", nodes=3, runs=tmp_path / "runs").passed


@pytest.mark.local_first
def test_a_run_that_somebody_else_has_started_can_be_watched(cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "steps.py"
    script.write_text(STEPS)
    watched = Watched(step=True)  # so that it does not end before somebody watches
    ended = threading.Event()

    class Waits(Hand):
        """Runs on as soon as the other one sees the run."""

        def show(self, now: Now, follower: Follower) -> None:
            if seen.is_set():
                watched.run_on()

    def run() -> None:
        watch(cluster, script, Waits(watched), watched, nodes=3, timeout_s=DEADLINE_S)
        ended.set()

    seen = threading.Event()
    runner = threading.Thread(target=run)
    runner.start()
    while watched.path is None and not ended.is_set():
        ended.wait(0.05)
    command = [sys.executable, "-m", "lab.cli.main", "watch", "--json", "--runs", str(script.parent / "runs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as other:
        told = []
        for line in other.stdout:
            told.append(json.loads(line))
            seen.set()
    runner.join(DEADLINE_S)
    assert other.returncode == 0
    assert told[-1]["event"] == "verdict"
    assert told[-1]["verdict"] == "passed"
    begun = [(one["rank"], one["op"]) for one in told if one["event"] == "begin"]
    assert begun.count((1, "all_reduce")) == 3
    assert [one["time_s"] for one in told[:-1]] == sorted(one["time_s"] for one in told[:-1])
