"""Where a rank was, from what faulthandler and tracebacks look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.diagnosis.stacks import (
    CodeLocation,
    clip_stack,
    find_location,
    find_raised,
    has_returned,
    script_files,
    shorten_paths,
    shorten_stack,
)
from lab.diagnosis.wording import render_location
from tests.golden import golden

DUMP = """Thread 0x00007f11 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/opt/venv/lib/torch/_inductor/worker.py", line 3 in run

Thread 0x00007f22 (most recent call first):
  File "/opt/venv/lib/torch/distributed/distributed_c10d.py", line 5356 in barrier
  File "/opt/venv/lib/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/var/lab/run/work/pkg/train.py", line 2 in step
  File "/var/lab/run/work/main.py", line 9 in <module>
  File "/opt/lab/labnode/node/rank/worker.py", line 106 in _run_script
  File "<string>", line 1 in <module>
"""
CRASH = """Fatal Python error: Segmentation fault

Current thread 0x00007f33 (most recent call first):
  File "/var/lab/run/work/main.py", line 4 in crash

Thread 0x00007f22 (most recent call first):
  File "/var/lab/run/work/main.py", line 9 in <module>

Extension modules: numpy, torch._C (total: 20)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").write_text("def step():\n    dist.barrier()  # wait\n")
    return tmp_path


def test_the_innermost_line_of_the_script_on_the_main_thread_counts(folder: Path):
    place = find_location(DUMP, folder)
    assert place == CodeLocation(file="pkg/train.py", line=2, call="barrier", source="dist.barrier()  # wait")
    assert render_location(place) == golden(1)


def test_a_crash_counts_on_its_own_thread(folder: Path):
    assert find_location(CRASH, folder) == CodeLocation(file="main.py", line=4, call="")


def test_the_wait_of_ddp_has_its_class_as_name(folder: Path):
    dump = (
        '  File "/x/torch/autograd/graph.py", line 8 in run\n'
        '  File "/x/torch/nn/parallel/distributed.py", line 1600 in forward\n'
        '  File "/var/lab/run/work/main.py", line 9 in <module>\n'
    )
    assert find_location(dump, folder).call == "DistributedDataParallel.forward"


def test_a_line_without_its_source_is_told_by_number(folder: Path):
    place = find_location('  File "/var/lab/run/work/gone.py", line 7 in f\n', folder)
    assert render_location(place) == "at gone.py:7"


def test_a_line_beyond_the_end_of_its_file_has_no_source(folder: Path):
    assert find_location(golden(1), folder).source == ""


@pytest.mark.parametrize("dump", ["", "(no Python stack)", "Thread 0x1 (most recent call first):\n", "garbage\n\0"])
def test_what_holds_no_frame_is_no_place(folder: Path, dump: str):
    assert find_location(dump, folder) is None


def test_code_outside_the_scripts_folder_is_told_by_its_path(folder: Path):
    assert find_location(golden(1), folder).file == "/usr/lib/python3.11/runpy.py"


def test_a_traceback_has_its_innermost_line_last(folder: Path):
    traceback = (
        "Traceback (most recent call last):\n"
        '  File "/tmp/lab-1/c/node0/run/work/main.py", line 9, in <module>\n    step()\n'
        '  File "/tmp/lab-1/c/node0/run/work/pkg/train.py", line 2, in step\n    dist.barrier()\n'
        '  File "/x/torch/distributed/distributed_c10d.py", line 5356, in barrier\n    work.wait()\n'
        "RuntimeError: Connection closed by peer\n"
    )
    place = find_raised(traceback, folder)
    assert (place.file, place.line, place.call) == ("pkg/train.py", 2, "barrier")


def test_paths_become_relative_to_the_scripts_folder():
    assert shorten_paths('File "/tmp/lab-0-a1/c/node0/run/work/a.py", line 1') == 'File "a.py", line 1'
    assert shorten_paths("nothing to do") == "nothing to do"


def test_a_stack_is_shown_without_the_labs_own_frames():
    shown = shorten_stack(DUMP)
    assert "labnode" not in shown
    assert "<string>" not in shown
    assert "threading.py" not in shown
    assert golden(1) in shown


def test_a_crash_is_shown_without_the_list_of_extension_modules():
    assert "Extension modules" not in shorten_stack(CRASH)


def test_the_files_of_the_script_are_named_and_none_beside_its_folder(folder: Path):
    raised = 'Traceback (most recent call last):\n  File "/var/lab/run/work/helper.py", line 3, in help\nKeyError: 1\n'
    assert script_files(DUMP + raised) == {"main.py", "pkg/train.py", "helper.py"}
    forged = "".join(f'  File "/var/lab/run/work/{name}", line 1 in x\n' for name in ("../secret.py", "/etc/passwd"))
    assert script_files(forged) == set()


def test_a_line_outside_the_folder_is_never_read(folder: Path):
    (folder / "secret.txt").write_text("the secret\n")
    place = find_location('  File "/var/lab/run/work/../secret.txt", line 1 in x\n', folder / "pkg")
    assert place is not None
    assert place.source == ""


LOADING = """Thread 0x00007f22 (most recent call first):
  File "/usr/lib/python3.11/selectors.py", line 415 in select
  File "/usr/lib/python3.11/multiprocessing/connection.py", line 947 in wait
  File "/opt/venv/lib/torch/utils/data/dataloader.py", line 1295 in _try_get_data
  File "/var/lab/run/work/main.py", line 9 in <module>
Process 77, started by this worker:
Thread 0x00007f22 (most recent call first):
  File "/usr/lib/python3.11/multiprocessing/queues.py", line 113 in get
  File "/opt/venv/lib/torch/utils/data/_utils/worker.py", line 320 in _worker_loop
Process 78, started by this worker:
Thread 0x00007f22 (most recent call first):
  File "/var/lab/run/work/pkg/train.py", line 2 in __getitem__
  File "/opt/venv/lib/torch/utils/data/_utils/worker.py", line 349 in _worker_loop
  File "/var/lab/run/work/main.py", line 9 in <module>
"""


def test_the_worker_of_a_data_loader_is_told_with_the_line_where_it_stood(folder: Path):
    place = find_location(LOADING, folder)
    assert (place.at, place.child and place.child.at, place.child and place.child.loader) == (
        "main.py:9",
        "pkg/train.py:2",
        True,
    )
    assert render_location(place) == golden(1)
    shown = shorten_stack(LOADING)
    assert "Process 78" in shown
    assert "Process 77" not in shown
    assert find_location(shown, folder) == place


FORKED = """Current thread 0x00007f11 (most recent call first):
  File "/var/lab/run/work/train.py", line 7 in work
  File "/opt/venv/lib/torch/multiprocessing/spawn.py", line 90 in _wrap
  File "/usr/lib/python3.11/multiprocessing/process.py", line 108 in run
  File "/usr/lib/python3.11/multiprocessing/process.py", line 314 in _bootstrap
  File "/usr/lib/python3.11/multiprocessing/popen_fork.py", line 71 in _launch
  File "/var/lab/run/work/test_train.py", line 9 in test_train
"""


def test_a_process_of_multiprocessing_is_shown_without_what_started_it(folder: Path):
    assert shorten_stack(FORKED) == '  File "train.py", line 7 in work'
    idle = FORKED.replace('/var/lab/run/work/train.py", line 7 in work', '/usr/lib/python3.11/queue.py", line 3 in get')
    assert find_location(idle, folder) == CodeLocation(file="/usr/lib/python3.11/queue.py", line=3, call="")


def deep(frames: int) -> str:
    inner = "".join(f'  File "/x/torch/deep.py", line {n} in f{n}\n' for n in range(frames))
    return f'{inner}  File "train.py", line 7 in main\n  File "train.py", line 30 in <module>\n'


def test_the_scripts_own_frame_is_in_a_stack_however_deep_it_lies():
    order, *shown = clip_stack(deep(40), 8)
    assert len(shown) == 8
    assert order == golden(2)
    assert shown[0].endswith("in f0")
    assert shown[-2:] == ["  …", golden(1)]
    assert clip_stack(deep(3), 8)[1:] == deep(3).splitlines()


def test_a_stack_ends_with_the_outermost_frame_of_the_script():
    own = [
        '  File "/x/torch/a.py", line 1 in wait',
        '  File "train.py", line 3 in f',
        '  File "train.py", line 9 in main',
    ]
    spawn = ['  File "/x/torch/multiprocessing/spawn.py", line 87 in _wrap', '  File "/usr/lib/p.py", line 3 in run']
    assert clip_stack("\n".join([*own, *spawn]), 8)[1:] == own


def test_the_scripts_own_frame_is_in_a_traceback_with_its_source():
    frames = "".join(f'  File "/x/torch/deep.py", line {n}, in f{n}\n    f{n + 1}()\n' for n in range(20))
    traceback = (
        f'Traceback (most recent call last):\n  File "train.py", line 7, in main\n    go()\n{frames}ValueError: x\n'
    )
    shown = clip_stack(traceback, 8)
    assert shown[:3] == [golden(1), "    go()", "  …"]
    assert shown[-1] == "ValueError: x"
    assert len(shown) == 8


@pytest.mark.parametrize("returned", [True, False])
def test_a_function_of_the_elastic_launcher_has_returned_when_it_waits_for_the_launcher(returned: bool) -> None:
    waits = "".join(
        f'  File "/usr/lib/python3.11/multiprocessing/synchronize.py", line {n} in wait\n' for n in (268, 336)
    )
    calls = '  File "train.py", line 3 in train\n  File "/x/torch/distributed/elastic/x.py", line 362 in wrapper\n'
    starts = '  File "/x/torch/distributed/elastic/multiprocessing/api.py", line 708 in _wrap\n'
    head = "Current thread 0x00007f5020052b80 (most recent call first):\n"

    assert has_returned(f"{head}{waits if returned else calls}{starts}") == returned
