"""Scripts that end in unusual but legitimate ways do what they would do under a plain interpreter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab import Result
from lab.spec.scenario import Expect
from tests.golden import golden

Run = Callable[..., Result]
WAYS = {
    "uses_atexit": "printed by atexit\nregistered first, printed last\n",
    "leaves_threads_running": "the main thread has ended\nthe thread has ended\n",
    "leaves_a_daemon_thread_running": "",
    "leaves_a_busy_daemon_thread_running": "",
    "changes_folder": "now in /\n",
    "removes_its_own_folder": "",
    "uses_threads": "[10000.0]\n",
    "deletes_itself_from_modules": "",
    "has_a_finalizer_that_prints": "finalized\n",
}
"""Way of `manners.py` -> what it prints."""


@pytest.mark.local_first
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cold", [False, pytest.param(True, marks=pytest.mark.long)], ids=["warm", "cold"])
def test_the_script_ends_well_and_says_all_it_has_to_say(run: Run, way: str, cold: bool) -> None:
    result = run("manners.py", way, nodes=1, cold=cold)

    assert result.passed, result.reason
    assert result.ranks[0].log == WAYS[way]


@pytest.mark.local_first
def test_an_exception_in_a_thread_is_printed_and_does_not_end_the_worker(run: Run) -> None:
    result = run("manners.py", "raises_in_a_thread", nodes=1)

    assert result.passed, result.reason
    assert golden(1) in result.ranks[0].log
    assert result.ranks[0].log.endswith(golden(2))


def test_a_file_that_is_open_at_the_end_is_flushed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "read.py").write_text(
        "import os\n"
        "path = os.path.join(os.environ['LAB_SHARED'], 'open.txt')\n"
        "print(open(path).read())\n"
        "os.unlink(path)\n"
    )

    assert run("manners.py", "leaves_files_open", "open.txt", nodes=1).passed
    assert run(tmp_path / "read.py", nodes=1).ranks[0].log == golden(1)


@pytest.mark.local_first
@pytest.mark.parametrize(("code", "seen"), [(0, 0), (1, 1), (77, 77), (255, 255), (256, 0), (-1, 255)])
def test_exit_codes_arrive_as_the_system_gives_them(run: Run, code: int, seen: int) -> None:
    result = run("manners.py", "exits_with", code, nodes=1, expect=Expect(exit={0: seen}))

    assert result.ranks[0].exit_code == seen
    assert result.passed, result.reason


@pytest.mark.local_first
@pytest.mark.parametrize(
    ("way", "result_of"),
    [
        (("loads_data",), 120.0),
        pytest.param(("spawns",), "01", marks=pytest.mark.long),  # as test_own_stores, and the lesson rendezvous/spawn
        (("uses_a_pool", "fork"), [0, 1, 4, 9, 16]),
        pytest.param(("uses_a_pool", "spawn"), [0, 1, 4, 9, 16], marks=pytest.mark.long),
        pytest.param(("uses_a_pool", "forkserver"), [0, 1, 4, 9, 16], marks=pytest.mark.long),
        pytest.param(("uses_a_queue",), [[0, 0.0], [1, 2.0]], marks=pytest.mark.long),
        (("differentiates",), True),
        (("waits_for_asynchronous_collectives",), 1),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_workers_can_have_processes_and_threads_of_their_own(run: Run, way: tuple[str, ...], result_of: object) -> None:
    result = run("children.py", *way, nodes=1)

    assert result.passed, result.reason + result.ranks[0].log
    assert result.ranks[0].notes["result"] == result_of
    assert result.ranks[0].log == ""


@pytest.mark.trains
@pytest.mark.local_first
@pytest.mark.parametrize("times", [3, pytest.param(8, marks=pytest.mark.long)])
def test_a_global_ddp_model_does_not_hang_the_end_and_open_files_are_flushed(
    run: Run, tmp_path: Path, times: int
) -> None:
    for _ in range(times):  # the end of the model and a thread of gloo used to wait for each other, now and then
        assert run("leaves_ddp_behind.py").passed
    read = tmp_path / "read.py"
    read.write_text(
        "import gzip, os\nfolder = os.environ['LAB_SHARED']\n"
        "for rank in range(3):\n"
        "    print(open(f'{folder}/left-open.txt.{rank}').read())\n"
        "    print(gzip.open(f'{folder}/left-open.gz.{rank}', 'rt').read())\n"
        "    os.remove(f'{folder}/left-open.txt.{rank}')\n    os.remove(f'{folder}/left-open.gz.{rank}')\n"
    )
    assert run(read, nodes=1).ranks[0].log == "flushed\n" * 6
