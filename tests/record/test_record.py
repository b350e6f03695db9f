"""Records: written fact by fact, read whatever is left of them, found by name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lab.diagnosis.explain import explain_run
from lab.errors import RecordError
from lab.node.messages.agent import Exited, Note, Started
from lab.plan.plan import WorkerPlan
from lab.record.events import Clock
from lab.record.layout import EVENTS, RESULT
from lab.record.layout import PLAN as PLAN_FILE
from lab.record.read import IndexReader, Record, RecordedPlan, find_record, list_records, read_output
from lab.record.record_files import MOST_TEXT_BYTES, is_held
from lab.record.result import Culprit, Expectation, RankResult, RecordedFinding, Result
from lab.record.write import RecordWriter
from lab.trace.read import read_trace
from tests.golden import golden

PLAN = {
    "scenario": "scatter",
    "engine": "local",
    "cluster": "c",
    "workers": [{"rank": 0, "node": "node0"}, {"rank": 1, "node": "node1"}],
}


def result(**more: object) -> Result:
    known = {
        "verdict": "passed",
        "reason": "fine",
        "scenario": "scatter",
        "run": "r",
        "engine": "local",
        "cluster": "c",
    }
    return Result(**{**known, **more})  # type: ignore[arg-type]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "scatter.py"
    path.write_text("print()\n")
    return path


@pytest.fixture
def written(tmp_path: Path, script: Path) -> Record:
    """A whole record of two ranks."""
    writer = RecordWriter(tmp_path / "runs", "scatter")
    writer.describe("name: scatter\n", script, PLAN)
    writer.event(Started(rank=0, time=1.0, node="node0"))
    writer.output(0, 1, b"one\n", 1.5)
    writer.output(1, 2, "zwei ü\n".encode(), 1.6)
    writer.output(0, 1, b"\xff\x00half a line", 1.7)
    writer.finish(result(path=writer.path, ranks=(RankResult(rank=0, node="node0", local_rank=0),)))
    return Record(path=writer.path)


def test_a_source_is_kept_once_and_only_from_the_folder_of_the_scenario(tmp_path: Path, script: Path) -> None:
    folder = tmp_path / "scenario"
    (folder / "pkg").mkdir(parents=True)
    (folder / "pkg" / "model.py").write_text("import torch\n")
    (folder / "data.csv").write_text("1\n")
    (folder / "link.py").symlink_to(script)
    writer = RecordWriter(tmp_path / "runs", "scatter")
    os.mkfifo(folder / "pipe.py")
    with open(folder / "sparse.py", "wb") as sparse:
        sparse.truncate(1 << 40)
    for name in ("pkg/model.py", "../scatter.py", "link.py", "data.csv", "gone.py", "pipe.py", "sparse.py"):
        writer.copy_source(folder, name, {})
    (folder / "pkg" / "model.py").write_text("changed\n")
    writer.copy_source(folder, "pkg/model.py", {})
    writer.copy_source(folder, "own/loss.py", {"own/loss.py": script})
    writer.close()
    assert sorted(path.name for path in tmp_path.rglob("runs/*/**/*.py")) == ["loss.py", "model.py", "sparse.py"]
    assert (writer.path / "pkg" / "model.py").read_text() == "import torch\n"
    assert (writer.path / "sparse.py").stat().st_size == MOST_TEXT_BYTES


# -- whole


def test_what_is_written_is_read_again(written: Record):
    assert written.complete
    assert written.result().verdict == "passed"
    assert written.plan() == RecordedPlan(
        scenario="scatter",
        engine="local",
        cluster="c",
        workers=(WorkerPlan(rank=0, node="node0"), WorkerPlan(rank=1, node="node1")),
    )
    assert written.scenario_text() == "name: scatter\n"
    assert list(written.events()) == [Started(rank=0, time=1.0, node="node0")]


def test_output_comes_back_in_the_order_of_arrival_and_whole(written: Record):
    assert [(piece.rank, piece.stream, piece.data) for piece in written.output()] == [
        (0, 1, b"one\n"),
        (1, 2, "zwei ü\n".encode()),
        (0, 1, b"\xff\x00half a line"),
    ]
    assert written.log(0) == b"one\n\xff\x00half a line"


def test_the_index_says_where_each_piece_stands(written: Record):
    lines = [json.loads(line) for line in (written.path / "logs" / "index.jsonl").read_text().splitlines()]
    assert lines == [[0, 1, 0, 4, 1.5], [1, 2, 0, 8, 1.6], [0, 1, 4, 13, 1.7]]


def test_output_is_followed_from_where_one_has_read(tmp_path: Path):
    writer = RecordWriter(tmp_path, "s")
    record = Record(path=writer.path)
    index = IndexReader()
    assert [*read_output(record.path, index)] == []
    writer.output(0, 1, b"a\n", 1.0)
    pieces = [*read_output(record.path, index)]
    assert [piece.data for piece in pieces] == [b"a\n"]
    assert [*read_output(record.path, index)] == []
    writer.output(0, 1, b"b\n", 1.0)
    assert [piece.data for piece in read_output(record.path, index)] == [b"b\n"]


def test_a_result_as_json_is_plain_data(written: Record):
    assert json.loads((written.path / "result.json").read_text())["path"] == str(written.path)


def test_a_rank_that_printed_nothing_has_an_empty_log(tmp_path: Path, script: Path):
    writer = RecordWriter(tmp_path / "runs", "s")
    writer.describe("", script, PLAN)
    assert Record(path=writer.path).log(1) == b""


def test_a_rank_that_the_run_did_not_have_is_refused(written: Record):
    with pytest.raises(RecordError, match=golden(1)):
        written.log(7)


# -- damaged


@pytest.mark.parametrize(
    "name", ["result.json", "plan.json", "scenario.yaml", "events.jsonl", "logs/index.jsonl", "logs/rank0.log"]
)
@pytest.mark.parametrize("damage", ["missing", "empty", "half", "garbage", "list", "folder"])
def test_a_damaged_record_still_opens(written: Record, name: str, damage: str):
    path = written.path / name
    content = path.read_bytes()
    half = content[: len(content) // 2]
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes({"empty": b"", "half": half, "garbage": b"\xff{[\n\0", "list": b"[1, 2]\n"}[damage])
    found = written.result()
    assert found.verdict in ("passed", "error")
    assert found.path == written.path
    assert found.reason
    assert isinstance(written.plan(), RecordedPlan)
    assert isinstance(written.scenario_text(), str)
    assert all(isinstance(event.time, float) for event in written.events())
    assert all(isinstance(piece.data, bytes) for piece in written.output())
    assert list_records(written.path.parent) == [written]


def test_a_record_without_a_result_says_why_and_what_is_known(written: Record):
    (written.path / "result.json").unlink()
    assert not written.complete
    found = written.result()
    assert found.verdict == "error"
    assert golden(1) in found.reason
    assert (found.scenario, found.engine, found.cluster) == ("scatter", "local", "c")


def test_a_line_that_was_cut_short_is_left_out_and_the_rest_is_read(written: Record):
    with (written.path / "events.jsonl").open("ab") as file:
        file.write(b'{"event": "exited", "ra')
    assert list(written.events()) == [Started(rank=0, time=1.0, node="node0")]
    with (written.path / "logs" / "index.jsonl").open("ab") as file:
        file.write(b"[0, 1, 17,")
    assert len(list(written.output())) == 3


def test_a_damaged_line_in_the_middle_does_not_hide_what_follows(written: Record):
    index = written.path / "logs" / "index.jsonl"
    lines = index.read_bytes().splitlines(keepends=True)
    index.write_bytes(lines[0] + b"[not json\n" + b'{"a": 1}\n' + b"[1]\n" + lines[2])
    assert [piece.data for piece in written.output()] == [b"one\n", b"\xff\x00half a line"]


def test_a_log_that_is_shorter_than_its_index_gives_what_is_there(written: Record):
    log = written.path / "logs" / "rank0.log"
    log.write_bytes(log.read_bytes()[:6])
    assert [piece.data for piece in written.output() if piece.rank == 0] == [b"one\n", b"\xff\x00"]


# -- damaged in a field: what is left is typed as promised, and nobody has to look again


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"verdict": "odd"}', ("error", 0, None)),
        (
            '{"verdict": "failed", "ranks": [{}, {"rank": "0"}, {"rank": 1, "notes": [1], "node": 3}]}',
            ("failed", 1, None),
        ),
        ('{"verdict": "failed", "culprit": "x", "ranks": {"0": 1}}', ("failed", 0, None)),
        ('{"verdict": "hung", "culprit": {"rank": "2", "node": "node2"}}', ("hung", 0, Culprit(node="node2"))),
    ],
)
def test_what_is_damaged_in_a_result_is_left_out(written: Record, text: str, found: tuple[object, ...]):
    (written.path / RESULT).write_text(text)
    result = written.result()
    assert (result.verdict, len(result.ranks), result.culprit) == found
    assert (result.scenario, result.engine) == ("scatter", "local")
    assert [(rank.rank, rank.node, rank.notes) for rank in result.ranks] in ([], [(1, "", {})])


def test_what_is_damaged_in_a_plan_is_left_out(written: Record):
    workers = '[{}, 5, {"rank": true}, {"rank": 3, "node": 1, "env": {"A": "1", "B": 2}, "argv": "x"}]'
    (written.path / PLAN_FILE).write_text(f'{{"timeout_s": "x", "nnodes": 1.5, "cold": false, "workers": {workers}}}')
    assert written.plan() == RecordedPlan(cold=False, workers=(WorkerPlan(rank=3, env={"A": "1"}),))
    assert written.workers() == {3: ""}


def test_events_of_an_unknown_kind_or_with_damaged_facts_are_left_out(written: Record):
    lines = [
        '{"event": 5, "time": 1}', '{"event": "later", "time": 1}', '{"event": "note", "rank": "a", "time": 1}', "[]",
        '{"event": "started", "rank": 0}', '{"event": "started", "rank": 0, "time": 1e308}',
        '{"event": "exited", "rank": 0, "time": NaN}',
        '{"event": "exited", "rank": 1, "time": 2, "signal": 9, "code": 1}',
        '{"event": "clock", "node": "node0", "time": 3.5, "offset_s": "x"}', '{"event": "note", "rank": 1, "time": 4}',
    ]  # fmt: skip
    (written.path / EVENTS).write_text("\n".join(lines) + "\n")
    assert list(written.events()) == [
        Exited(rank=1, time=2, code=1),
        Clock(time=3.5, node="node0"),
        Note(rank=1, time=4),
    ]


# -- a result, loaded


def whole_result(folder: Path) -> Result:
    log = folder / "logs" / "rank0.log"
    rank = RankResult(rank=0, node="node0", exit_code=1, error="no", notes={"a": [1.0, "nan"]}, log_path=log)
    return result(
        verdict="failed",
        culprit=Culprit(rank=0, node="node0", error="no"),
        findings=(RecordedFinding(kind="failed", sentence="No.", ranks=[0], facts={"how": "raised"}),),
        ranks=(rank,),
        expectations=(Expectation(what="note a", rank=0, expected={"x": None}, got=2, met=False),),
        duration_s=1.5,
        exit_code=1,
        path=folder,
    )


def test_a_loaded_result_is_the_one_that_was_written(tmp_path: Path):
    writer = RecordWriter(tmp_path / "runs", "s")
    known = whole_result(writer.path)
    writer.finish(known)
    assert Result.load(writer.path) == known
    [finding] = Result.load(writer.path).findings
    assert (finding.kind, finding["kind"], finding.facts["how"]) == ("failed", "failed", "raised")
    with pytest.raises(AttributeError, match="kind, sentence, ranks, facts"):
        assert finding.text
    moved = writer.path.rename(tmp_path / "elsewhere")
    assert Result.load(str(moved)) == whole_result(moved)


@pytest.mark.parametrize("damage", ["", "[]", '{"verdict": "passed", "ranks": [{}]}'])
def test_a_result_that_is_missing_or_damaged_is_not_loaded_but_refused_with_a_reason(written: Record, damage: str):
    (written.path / RESULT).write_text(damage)
    with pytest.raises(RecordError, match=golden(1)):
        Result.load(written.path)
    (written.path / RESULT).unlink()
    with pytest.raises(RecordError, match=golden(2)):
        Result.load(written.path)


# -- finding


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for age, name in enumerate(["20260101-1-scatter", "20260101-2-reduce", "20260102-3-scatter"]):
        (tmp_path / name / "logs").mkdir(parents=True)
        os.utime(tmp_path / name, (1000 + age, 1000 + age))
    (tmp_path / "not-a-record").mkdir()
    (tmp_path / "file").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (None, "20260102-3-scatter"),
        ("20260101-2-reduce", "20260101-2-reduce"),
        ("20260102", "20260102-3-scatter"),
        ("reduce", "20260101-2-reduce"),
        ("scatter", "20260102-3-scatter"),  # the latest of those that end like that
        ("1-scatter", "20260101-1-scatter"),
    ],
)
def test_a_record_is_found_by_name_beginning_end_or_as_the_latest(runs: Path, name: str | None, found: str):
    assert find_record(name, runs).run == found


def test_a_record_is_found_by_its_path(runs: Path, tmp_path: Path):
    assert find_record(str(runs / "20260101-1-scatter"), tmp_path / "elsewhere").run == "20260101-1-scatter"


def test_an_ambiguous_beginning_is_refused_with_the_candidates(runs: Path):
    with pytest.raises(RecordError, match=golden(1)):
        find_record("20260101", runs)


def test_a_name_that_is_nearly_right_is_suggested(runs: Path):
    with pytest.raises(RecordError) as caught:
        find_record("20260101-2-redcue", runs)
    assert caught.value.hint == golden(1)


def test_no_runs_at_all_says_how_to_start_one(tmp_path: Path):
    with pytest.raises(RecordError, match=golden(1)) as caught:
        find_record(None, tmp_path / "none")
    assert "lab run" in caught.value.hint


# -- writing


def test_two_runs_of_the_same_second_have_different_folders(tmp_path: Path):
    names = {RecordWriter(tmp_path, "s").run for _ in range(5)}
    assert len(names) == 5


def test_a_record_moves_and_is_written_on(tmp_path: Path):
    writer = RecordWriter(tmp_path / "a", "s")
    writer.trace(0, b"first\n")
    (tmp_path / "b" / writer.run).mkdir(parents=True)
    writer.move(tmp_path / "b")
    writer.trace(0, b"second\n")

    assert writer.path.parent == tmp_path / "b"
    assert writer.path.name == writer.run
    assert (writer.path / "trace" / "rank0.jsonl").read_bytes() == b"first\nsecond\n"
    assert is_held(writer.path)
    assert not any((tmp_path / "a").iterdir())


def test_git_leaves_the_folder_alone_that_is_made_for_all_records(tmp_path: Path):
    for runs in (tmp_path / "a/.lab/runs", tmp_path / "b"):
        RecordWriter(runs, "s")
    assert (tmp_path / "a/.lab/.gitignore").read_text() == "*\n"
    assert not (tmp_path / ".gitignore").exists()


def test_an_odd_scenario_name_makes_a_plain_folder_name(tmp_path: Path):
    assert RecordWriter(tmp_path, "../ü x/y").path.parent == tmp_path


def test_an_empty_record_is_discarded_and_one_with_a_plan_or_a_result_is_kept(tmp_path: Path, script: Path):
    empty, planned, finished = (RecordWriter(tmp_path / "runs", "s") for _ in range(3))
    planned.describe("", script, PLAN)
    finished.finish(result())
    for writer in (empty, planned, finished):
        writer.discard_if_empty()
    assert [record.run for record in list_records(tmp_path / "runs")] == [planned.run, finished.run]


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match=golden(1)) as caught:
        RecordWriter(tmp_path / "file" / "runs", "s")
    assert "--runs" in caught.value.hint


def test_a_record_removed_in_mid_run_is_a_sentence(tmp_path: Path):
    import shutil

    writer = RecordWriter(tmp_path, "s")
    shutil.rmtree(writer.path)
    with pytest.raises(RecordError, match="No such file"):
        writer.output(0, 1, b"x\n", 1.0)
    with pytest.raises(RecordError, match="No such file"):
        writer.finish(result())


# -- an earlier version

NOVEMBER = Path(__file__).with_name("from_november") / "20261127-083953-only-on-rank0"
"""A run of the lesson broken/only_on_rank0 on two local nodes, as the lab of 23 November 2026 recorded it."""


def test_a_record_of_an_earlier_version_is_read_with_its_calls_and_causes() -> None:
    record, result = Record(path=NOVEMBER), Result.load(NOVEMBER)
    assert (result.verdict, len(result.ranks), result.unmet[0].what) == ("failed", 2, "culprit")
    assert record.result() == result
    assert record.ranks() == {0: "node0", 1: "node1"}
    assert {call.op for rank in read_trace(record).ranks.values() for call in rank.calls} == {"all_reduce", "barrier"}
    assert explain_run(record).findings[0].kind == "mismatch"
    assert sum(piece.data.count(b"\n") for piece in read_output(NOVEMBER, IndexReader())) == 10
