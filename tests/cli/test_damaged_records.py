"""A record that somebody damaged is shown as far as it goes, by every verb, and spoils no other one."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.cli.main import main
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.facts import read_facts
from lab.diagnosis.judge import judge_evidence
from lab.record.layout import EVENTS, INDEX, LOGS, PLAN, RESULT, TRACE
from lab.record.read import Record
from tests.traces import TraceMaker

pytestmark = pytest.mark.features


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


class Literal(str):
    """JSON as it stands, which Python cannot write."""


WRONG: list[Any] = [
    None, True, -1, 0, 1 << 62, 10**30, 10**400, -1.5, 1e308, "", "text", [], [[]], ["a", 1], {}, {"a": {}},
    nested(900), "\x1b]0;t\udcff", Literal("1e999"), Literal("NaN"), Literal("-Infinity"), Literal("[" * 2000),
]  # fmt: skip
VIEWS = [
    ["runs"], ["runs", "--json"], ["show", "r"], ["show", "r", "--json"], ["show", "r", "--steps"],
    ["show", "r", "--steps", "--json"], ["show", "r", "--calls"], ["show", "r", "--step", "1"],
    ["show", "r", "--step", "3", "--json"], ["logs", "r"], ["logs", "r", "--json"],
    ["logs", "r", "--rank", "0"], ["explain", "r"], ["explain", "r", "--json"], ["trace", "r"],
    ["trace", "r", "--json"], ["trace", "r", "--chrome", "-"], ["diff", "r", "good"], ["diff", "r", "good", "--json"],
    ["report", "r"],
]  # fmt: skip
FILES = [RESULT, PLAN, EVENTS, INDEX, f"{TRACE}/rank0.jsonl", f"{TRACE}/rank1.jsonl"]


def make(folder: Path) -> None:
    """A run with everything that a record can hold."""
    maker = TraceMaker(folder, 2)
    maker.group("1", [0, 1], 2)
    for rank in range(2):
        maker.line(rank, "mark", 1, n="new_group", e=0, at="train.py:2", g="1", ranks=[0, 1])
        maker.line(rank, "mark", 2, n="new_group", e=1)
        maker.mark(rank, "forward", 1, 2)
        maker.line(rank, "ddp", 3, d=1, g="0", rebuilt=True, params=[["w", "float32", [2, 3]]], buckets=[[0]])
        maker.call(rank, "all_reduce", 10 + rank, 20, [[1.0]], [[2.0]], red="SUM")
        maker.call(rank, "all_to_all_single", 22, 23, [[1.0, 2.0]], [[1.0, 2.0]], split=[[1, 1], [1, 1]])
        maker.call(rank, "broadcast", 24, 25, [[1.0 + rank]], [[1.0]], root=0, group="1")
        maker.line(rank, "mark", 26, n="destroy_process_group", e=0, at="train.py:30", g="1")
        maker.line(rank, "mark", 26, n="destroy_process_group", e=1)
        begin = {"i": 9, "op": "all_reduce", "g": "0", "async": True, "in": [["float32", [1000]]], "ib": 4000, "seq": 4}
        summary = {"n": 1000, "norm": 1.0, "min": "-inf", "max": 2.0, "hash": "0badcafe", "sampled": 10}
        maker.line(rank, "begin", 26, **begin, **{"is": [summary]}, red="SUM", at="train.py:20", fn="f", via="step")
        maker.line(rank, "end", 27, i=9, os=[summary])
    maker.call(0, "send", 28, 29, [[1.0]], peer=1, tag=3)
    maker.call(1, "recv", 28, 29, [[1.0]], [[1.0]], peer=0, tag=3, in_place=True)
    maker.call(0, "all_reduce", 30, None, [[1.0]], red="SUM")
    ranks = [
        {"rank": rank, "node": f"node{rank}", "local_rank": 0, "exit_code": rank, "signal": None, "stopped": False,
         "error": "ValueError: no", "traceback": 'Traceback:\n  File "train.py", line 3, in f', "stack": "",
         "notes": {"x": [1, 2.5]}, "duration_s": 1.0, "log_path": None}
        for rank in range(2)
    ]  # fmt: skip
    culprit = {"rank": 1, "node": "node1", "error": "ValueError: no", "traceback": "Traceback:"}
    expectation = {"what": "note x", "rank": 1, "expected": [1], "got": 2, "met": False}
    maker.record(
        result={
            "verdict": "failed", "reason": "rank 1 raised ValueError: no", "scenario": "train", "run": "r",
            "engine": "local", "cluster": "c", "culprit": culprit, "ranks": ranks, "expectations": [expectation],
            "duration_s": 1.0, "faults": [{"kill": "node1"}], "exit_code": 1, "path": None,
        }
    )  # fmt: skip
    plan = json.loads((folder / PLAN).read_text())
    more = {"nnodes": 2, "nproc_per_node": 1, "master_addr": "node0", "master_port": 29500, "cold": False}
    (folder / PLAN).write_text(json.dumps({**plan, **more, "timeout_s": 60.0, "memory_bytes": 1 << 30}))
    events: list[dict[str, Any]] = [
        {"event": "clock", "time": 1.7e9, "node": "node1", "offset_s": 0.1, "error_s": 0.01, "boot": "b"},
        {"event": "started", "rank": 0, "time": 1.7e9, "node": "node0", "run": "r", "pid": 7},
        {"event": "started", "rank": 1, "time": 1.7e9, "node": "node1", "run": "r", "pid": 8},
        {"event": "note", "rank": 0, "time": 1.7e9, "name": "x", "value": [1, 2.5], "node": "node0", "run": "r"},
        {"event": "exited", "rank": 1, "time": 1.7e9 + 1, "node": "node1", "run": "r", "code": 1, "signal": None,
         "out_of_memory": False, "stopped": False, "error": "ValueError: no", "traceback": "T", "raised": 1.7e9 + 1,
         "stack": ""},
        {"event": "stack", "rank": 0, "time": 1.7e9 + 1, "node": "node0", "run": "r", "text": '  File "t.py", line 3'},
        {"event": "timed out", "time": 1.7e9 + 2},
        {"event": "over", "time": 1.7e9 + 2, "duration_s": 2.0},
    ]  # fmt: skip
    (folder / EVENTS).write_text("".join(json.dumps(event) + "\n" for event in events))
    for rank in range(2):
        (folder / LOGS / f"rank{rank}.log").write_text(f"hello from {rank}\n")
    (folder / INDEX).write_text("".join(f"[{rank}, 1, 0, 13, 1700000000.5]\n" for rank in range(2)))


def places(data: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in plain data: as keys and indices from the outside in."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*at, key)
        yield from places(value, (*at, key))


def replaced(data: Any, place: tuple[Any, ...], value: Any) -> str:
    """The data as JSON with a value put there; a literal as it stands."""
    data = copy.deepcopy(data)
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = "@@" if isinstance(value, Literal) else value
    text = json.dumps(data)
    return text.replace('"@@"', value) if isinstance(value, Literal) else text


def read(path: Path) -> list[Any]:
    """What a file holds, a value a line; one for a whole file of JSON."""
    text = path.read_text()
    return [json.loads(text)] if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]


def refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


class Damaged:
    """A folder of runs, two whole ones, `good` and `hung`, and `r`, which can be damaged again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / ".lab" / "runs"
        make(self.folder / "good")
        for name in ("hung", "r"):
            shutil.copytree(self.folder / "good", self.folder / name)
        events = self.folder / "hung" / EVENTS
        events.write_text("".join(line for line in events.open() if '"exited"' not in line))
        self.whole = {(run, name): read(self.folder / run / name) for run in ("good", "hung") for name in FILES}
        self.places = [
            (run, name, line, place)
            for (run, name), lines in self.whole.items()
            for line, data in enumerate(lines)
            for place in places(data)
            if run == "good" or name != RESULT
        ]

    def damage(self, run: str, name: str, line: int, place: tuple[Any, ...], value: Any) -> None:
        lines = [json.dumps(data) for data in self.whole[run, name]]
        lines[line] = replaced(self.whole[run, name][line], place, value)
        self.write(name, "\n".join(lines).encode() + b"\n", run)

    def write(self, name: str, data: bytes, run: str = "good") -> None:
        for file in FILES:
            shutil.copyfile(self.folder / run / file, self.folder / "r" / file)
        (self.folder / "r" / name).write_bytes(data)

    def look(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Have every view show it: in words or as JSON, or with a sentence that says why not; and judge it again."""
        for words in VIEWS:
            code, said = main(words), capsys.readouterr()
            assert code == 0 or said.err.startswith("lab: "), words
            if code == 0 and "--json" in words and words[0] != "logs":
                json.loads(said.out, parse_constant=refuse)
            assert "rank 1 raised ValueError: no" in said.out or words[0] != "runs"
        record = Record(path=self.folder / "r")
        assert judge_evidence(Evidence(facts=read_facts(record), record=record)).reason


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Damaged]:
    folder = tmp_path_factory.mktemp("damaged")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("NO_COLOR", "1")
        patch.setenv("LAB_DEBUG", "1")  # an error that nobody foresaw is raised
        yield Damaged(folder)


def test_the_record_is_whole_before(damaged: Damaged, capsys: pytest.CaptureFixture[str]) -> None:
    for words in VIEWS:
        assert main(words) == 0, (words, capsys.readouterr())


@pytest.mark.timeout(1800)
@settings(max_examples=settings.default.max_examples // 3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_wrong_value_anywhere_spoils_no_view(
    damaged: Damaged, capsys: pytest.CaptureFixture[str], data: st.DataObject
) -> None:
    damaged.damage(*data.draw(st.sampled_from(damaged.places)), data.draw(st.sampled_from(WRONG)))
    damaged.look(capsys)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", FILES)
def test_every_wrong_value_in_every_place_spoils_no_view(
    damaged: Damaged, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for number, place in enumerate(one for one in damaged.places if one[1] == name):
        for value in WRONG[number % 3 :: 3]:
            damaged.damage(*place, value)
            damaged.look(capsys)


@pytest.mark.sample(12)  # other damage of each file is tried by the tests above
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long) if name == f"{TRACE}/rank0.jsonl" else name for name in FILES],
)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 1000,
        b"\xff\xfe\x80garbage\n" * 20,
        b"[" * 100_000,
        b'{"k":"begin","i":1e999}\n{"k":["begin"]}\n{"k":{}}\n5\nnull\n"begin"\n',
        b'{"half": "a li',
        b'{"k": "begin", "op": "' + b"x" * 3_000_000,
    ],
    ids=["empty", "zeros", "binary", "deep", "lines", "half", "long"],
)
def test_garbage_in_any_file_spoils_no_view(
    damaged: Damaged, capsys: pytest.CaptureFixture[str], name: str, data: bytes
) -> None:
    damaged.write(name, data)
    damaged.look(capsys)


def test_a_run_whose_engine_was_lost_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then no rank failed, and no node was lost on its own."""
    folder = tmp_path / ".lab" / "runs" / "r"
    make(folder)
    events = [event for event in read(folder / EVENTS) if event["event"] not in ("exited", "timed out")]
    events += [
        {"event": "engine lost", "time": 1.7e9 + 2, "node": f"node{rank}", "reason": "gone"} for rank in range(2)
    ]
    (folder / EVENTS).write_text("".join(json.dumps(event) + "\n" for event in events))
    result = {**read(folder / RESULT)[0], "verdict": "error", "reason": "gone", "culprit": None}
    (folder / RESULT).write_text(json.dumps(result))
    monkeypatch.chdir(tmp_path)

    assert main(["explain", "r", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "error"
