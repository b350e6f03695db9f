"""What is left on this machine is the least that any of the limits leaves which hold for a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.engine.local.machine import read_capacity


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{text}\n")
    return folder


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    files = {
        "meminfo": "MemTotal: 9000 kB\nMemAvailable:    8000 kB",
        "loadavg": "0.1 0.2 0.3 2/150 4711",
        "sys/kernel/pid_max": "32768",
        "sys/kernel/threads-max": "190000",
        "self/cgroup": "8:pids:/\n0::/",
    }
    return written(tmp_path / "proc", files)


def test_the_kernel_s_own_limits_count_less_what_is_there(proc: Path, tmp_path: Path):
    capacity = read_capacity(proc, tmp_path / "nothing")
    assert capacity.memory_bytes == 8000 * 1024
    assert capacity.threads is not None
    assert capacity.threads <= 32768 - 150


def test_a_narrower_cgroup_counts_also_one_around_that_of_this_process(proc: Path, tmp_path: Path):
    (proc / "self/cgroup").write_text("0::/user.slice/user-7.slice/session\n")
    cgroups = written(
        tmp_path / "cgroup",
        {
            "user.slice/user-7.slice/pids.max": "900",
            "user.slice/user-7.slice/pids.current": "100",
            "user.slice/user-7.slice/session/pids.max": "max",
            "user.slice/memory.max": "5000000",
            "user.slice/memory.current": "4000000",
            "user.slice/memory.stat": "anon 1000\nfile 3000000",
        },
    )
    capacity = read_capacity(proc, cgroups)
    assert (capacity.threads, capacity.memory_bytes) == (800, 4_000_000)


def test_cgroups_of_version_1_are_read_by_controller(proc: Path, tmp_path: Path):
    (proc / "self/cgroup").write_text("8:pids:/a\n4:memory:/a\n3:cpuset:/\n0::/\n")
    cgroups = written(
        tmp_path / "cgroup",
        {
            "pids/a/pids.max": "70",
            "pids/a/pids.current": "20",
            "memory/a/memory.limit_in_bytes": "6000000",
            "memory/a/memory.usage_in_bytes": "2000000",
            "memory/a/memory.stat": "total_cache 500000",
        },
    )
    capacity = read_capacity(proc, cgroups)
    assert (capacity.threads, capacity.memory_bytes) == (50, 4_500_000)


def test_where_nothing_is_said_nothing_is_known(tmp_path: Path):
    capacity = read_capacity(tmp_path / "proc", tmp_path / "cgroup")
    assert (capacity.memory_bytes, capacity.threads) == (None, None)
