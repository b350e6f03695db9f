"""What is hard to record: every type of element, odd names, failures, haste; how a compiled recorder is had; its file.

A run picks the compiled recorder by itself on Docker, whose image has it, and the one in Python on the local engine.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab import Result
from lab.node.recorder import build
from tests.engines.conftest import each_recorder
from tests.golden import golden

pytestmark = pytest.mark.half

Run = Callable[..., Result]
Line = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).resolve().parent / "scripts"


@pytest.fixture
def recorded(recorder: str, run: Run) -> Callable[..., tuple[Result, list[list[Line]]]]:
    """Runs a script with a recorder; its result and the lines of every rank."""

    def recorded(*words: object, **options: Any) -> tuple[Result, list[list[Line]]]:
        result = run(*words, env={"LAB_RECORDER": recorder}, **options)
        assert result.path is not None
        files = sorted((result.path / "trace").iterdir())
        return result, [[json.loads(line) for line in file.read_text().splitlines()] for file in files]

    return recorded


def calls(lines: list[Line], op: str) -> list[tuple[Line, Line]]:
    """The begin and end lines of all calls of an operation."""
    ended = {line["i"]: line for line in lines if line["k"] == "end"}
    return [(line, ended[line["i"]]) for line in lines if line["k"] == "begin" and line["op"] == op]


@each_recorder
def test_elements_of_every_type_are_kept(recorded: Callable[..., tuple[Result, list[list[Line]]]]) -> None:
    result, ranks = recorded("recorded.py", "sends_all_types", nodes=2)
    assert result.passed, result.reason

    expected = [
        ("float64", [6], [0.1, -0.0, "nan", "inf", "-inf", 1e300]),
        ("float16", [3], [0.5, 65504.0, "nan"]),
        ("bfloat16", [2], [1.5, -2.0]),
        ("float32", [2, 2], [1.0, 2.0, "nan", "-inf"]),  # PyTorch sends complex numbers as pairs
        ("bool", [2], [True, False]),
        ("int64", [2], [-(2**63), 2**63 - 1]),
        ("uint8", [1, 2], [0, 255]),
        ("int32", [], [7]),
        ("float32", [0, 3], []),
    ]
    sent = [(begin["in"], begin["iv"]) for begin, _ in calls(ranks[0], "send")]
    received = [(begin["out"], end["ov"]) for begin, end in calls(ranks[1], "recv")]
    assert sent == received == [([[dtype, shape]], [values]) for dtype, shape, values in expected]


@each_recorder
def test_a_summary_tells_what_is_in_a_large_tensor(recorded: Callable[..., tuple[Result, list[list[Line]]]]) -> None:
    result, ranks = recorded("recorded.py", "sends_many", nodes=2)
    assert result.passed, result.reason

    plain, transposed, nothing, whole = ([s for [s] in (b["is"], e["os"])] for b, e in calls(ranks[0], "all_reduce"))
    norm = math.sqrt(998 * 4 + 9 + 25)
    for summary in (*plain, transposed[0]):
        assert (summary["n"], summary["min"], summary["max"]) == (1000, -3.0, 5.0)
        assert summary["norm"] == pytest.approx(norm)
    assert transposed[1]["max"] == 10.0
    assert plain[0]["hash"] == plain[1]["hash"] != transposed[0]["hash"]
    assert nothing[0]["norm"] == nothing[0]["min"] == nothing[0]["max"] == "nan"
    assert (whole[0]["min"], whole[0]["max"]) == (0, 999 * 2**50)


@pytest.mark.trains
@each_recorder
def test_what_ddp_may_change_at_once_is_on_record_as_it_was_or_said_to_be_late(
    recorder: str, recorded: Callable[..., tuple[Result, list[list[Line]]]]
) -> None:
    result, ranks = recorded("recorded.py", "goes_backward_without_a_pause", nodes=3)
    assert result.passed, result.reason

    reduced = [[(b, e) for b, e in calls(lines, "all_reduce") if b["via"] == "backward"] for lines in ranks]
    assert {len(of_rank) for of_rank in reduced} == {200}
    for of_step in zip(*reduced, strict=True):
        in_time = [end["ov"] for begin, end in of_step if "late" not in begin]
        assert len(in_time) == (0 if recorder == "python" else 3)
        assert all(one == in_time[0] for one in in_time)


@each_recorder
def test_the_reason_of_a_failed_call_is_kept(recorded: Callable[..., tuple[Result, list[list[Line]]]]) -> None:
    result, ranks = recorded("recorded.py", "fails", nodes=2)
    assert result.path is not None

    for rank, lines in enumerate(ranks):
        [(_, end)] = calls(lines, "all_reduce")
        printed = (result.path / "logs" / f"rank{rank}.log").read_text()
        assert end["err"]
        assert f"FAILED {end['err']}" in printed
        assert "ov" not in end


@each_recorder
def test_a_long_garbage_collection_is_on_record_and_none_that_holds_nobody_up(
    recorded: Callable[..., tuple[Result, list[list[Line]]]],
) -> None:
    _, [lines] = recorded("collects.py", nodes=1)
    first, second, third = (line["t"] for line in lines if line["k"] == "begin")
    told = [line for line in lines if line["k"] == "gc"]
    assert all(line["took"] >= 1_000_000 for line in told)
    assert any(line["gen"] == 2 and first < line["t"] - line["took"] and line["t"] < second for line in told)
    assert len([line for line in told if second < line["t"] < third]) < 10


@each_recorder
def test_names_are_kept_whatever_is_in_them(
    recorded: Callable[..., tuple[Result, list[list[Line]]]], tmp_path: Path
) -> None:
    script = tmp_path / 'qu"o\\te späte 日本 \x01.py'
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "def größer():\n"
        "    dist.all_reduce(torch.ones(1))\n"
        "größer()\n"
    )
    result, ranks = recorded(script, nodes=2)
    assert result.passed, result.reason

    [(begin, _)] = calls(ranks[0], "all_reduce")
    lines = f"{script.name}:4", f"{script.name}:5"
    assert (begin["at"], begin["by"], begin["fn"], begin["via"]) == (*lines, "größer", "all_reduce")


@pytest.mark.long
@each_recorder
def test_haste_neither_deadlocks_nor_loses_a_call(recorded: Callable[..., tuple[Result, list[list[Line]]]]) -> None:
    result, ranks = recorded("recorded.py", "hurries", nodes=3, timeout_s=150.0)
    assert result.passed, result.reason

    for lines in ranks:
        begun = [line for line in lines if line["k"] == "begin"]
        assert [line["i"] for line in begun] == list(range(1, len(begun) + 1))
        assert {line["i"] for line in begun} == {line["i"] for line in lines if line["k"] == "end"}
        numbers = [line["seq"] for line in begun if line["g"] == begun[0]["g"]]
        assert numbers == list(range(1, len(numbers) + 1))
        operations = Counter(line["op"] for line in begun if line.get("fn") == "hurries")
        assert operations["broadcast"] >= 6
        assert operations["all_reduce"] >= 12


# -- the compiled one for the local engine

_LOAD = "from lab.node.recorder import compiled as c; m = c.load_recorder(); print(m and m.__doc__); print(c.why)"


def load_from(cache: Path) -> list[str]:
    """What a fresh interpreter finds with a cache folder: the module's docstring or None, then the reason."""
    return python("-c", _LOAD, cache=cache).stdout.splitlines()


def python(*words: str, cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_CACHE_HOME": str(cache), **environment}
    return subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled recorder in a cache folder of its own."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    cache = tmp_path_factory.mktemp("cache")
    built = python("-m", build.__name__, cache=cache)
    assert built.returncode == 0, built.stderr
    path = Path(built.stdout.strip())
    assert path.parent == cache / "lab" / "recorder"
    return path


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_recorder_that_was_built_is_found_and_a_damaged_one_is_passed_over(built: Path, tmp_path: Path) -> None:
    assert load_from(built.parents[2]) == [golden(1), str(built)]

    damaged = tmp_path / "lab" / "recorder" / built.name
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"not a library")
    nothing, why = load_from(tmp_path)
    assert nothing == "None"
    assert why.startswith("ImportError: ")


def test_where_none_was_built_the_reason_names_what_was_looked_for(tmp_path: Path) -> None:
    nothing, why = load_from(tmp_path)
    assert nothing == "None"
    assert why.startswith("there is no recorder-torch")
    assert why.endswith(golden(1, build.source_hash(), tmp_path))


def test_a_build_without_a_compiler_says_so_in_a_sentence(tmp_path: Path) -> None:
    failed = python("-m", build.__name__, cache=tmp_path, CXX="no-such-compiler")
    assert failed.returncode == 1
    assert failed.stderr.startswith(golden(1))
    assert "no-such-compiler" in failed.stderr
    assert "Traceback" not in failed.stderr


# -- the file that it writes


@pytest.fixture(params=["python", pytest.param("compiled", marks=pytest.mark.docker)])
def written(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Has a recorder write lines, the compiled one in the image that has it; what an agent passes on of them."""
    script = SCRIPTS / "writes_lines.py"

    def here(*words: str) -> Any:
        done = subprocess.run([sys.executable, script, "python", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def in_the_image(*words: str) -> Any:
        printed = request.getfixturevalue("docker_engine").containers.run(
            request.getfixturevalue("node_image"),
            [f"/lab/{script.relative_to(ROOT)}", "compiled", *words],
            entrypoint="python",
            environment={"PYTHONPATH": "/lab", "PYTHONDONTWRITEBYTECODE": "1"},
            volumes={str(ROOT): {"bind": "/lab", "mode": "ro"}},
            working_dir="/tmp",
            network_mode="none",
            remove=True,
        )
        return json.loads(printed)

    return here if request.param == "python" else in_the_image


only_compiled = pytest.mark.parametrize("written", [pytest.param("compiled", marks=pytest.mark.docker)], indirect=True)
WHOLE = {"damaged": 0, "gaps": 0, "nul": False}
"""Every line that ends is whole, none is missing before it, and room that was not used is not passed on."""


def test_of_a_killed_process_nothing_is_lost_but_the_line_being_written(
    written: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    for seen in written("kills", "20" if request.config.getoption("--long") else "8"):
        assert seen.items() >= {**WHOLE, "lost": 0}.items()


@pytest.mark.local_first
def test_lines_of_several_threads_are_whole_and_the_file_ends_with_the_last(written: Callable[..., Any]) -> None:
    seen = written("threads")
    assert seen.items() >= {**WHOLE, "rest": 0, "latest": [19_999] * 4, "last": {"k": "stop"}}.items()
    assert seen["held"] <= mmap.PAGESIZE


@pytest.mark.long
@only_compiled  # the one in Python appends, and the agent sets its limit
def test_a_file_that_is_large_enough_ends_with_the_reason(written: Callable[..., Any]) -> None:
    seen = written("limit")
    assert seen.items() >= {**WHOLE, "rest": 0, "was_on": False}.items()
    assert (seen["last"]["k"], seen["last"]["why"]) == ("cut", golden(1))
    assert seen["lines"] == seen["latest"][0] + 2
    assert (1 << 20) - 1000 < seen["size"] <= 1 << 20
    assert seen["held"] <= mmap.PAGESIZE


@pytest.mark.sample(1)  # one file for both recorders
def test_a_full_disk_ends_the_recording_after_a_whole_line(written: Callable[..., Any]) -> None:
    seen = written("full")
    assert seen.items() >= {**WHOLE, "rest": 0, "was_on": False}.items()
    assert seen["lines"] == seen["latest"][0] + 1
    assert (1 << 20) - 1000 < seen["size"] <= 1 << 20
    assert seen["held"] <= mmap.PAGESIZE


@pytest.mark.local_first
def test_lines_may_be_longer_than_the_mapped_part_of_the_file(written: Callable[..., Any]) -> None:
    assert written("long").items() >= {**WHOLE, "rest": 0, "lines": 20, "latest": [19, -1, -1, -1]}.items()


@pytest.mark.local_first
def test_a_fork_writes_nothing_and_its_parent_goes_on(written: Callable[..., Any]) -> None:
    assert written("fork").items() >= {**WHOLE, "rest": 0, "latest": [10, -1, -1, -1], "status": 0}.items()


@pytest.mark.long
@only_compiled  # the one in Python appends, and the agent sets its limit
def test_what_cannot_be_mapped_is_written(written: Callable[..., Any]) -> None:
    seen = written("unmappable")
    assert seen.items() >= {**WHOLE, "rest": 0, "latest": [999, -1, -1, -1], "last": {"k": "stop"}}.items()


@pytest.mark.local_first
def test_a_file_that_somebody_makes_shorter_ends_nothing(written: Callable[..., Any]) -> None:
    assert written("cut").items() >= {**WHOLE, "rest": 0, "lines": 1000, "latest": [999, -1, -1, -1]}.items()
