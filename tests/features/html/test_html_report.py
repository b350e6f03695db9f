"""The HTML report's data: what is computed, cut, chosen and escaped before a browser sees it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from lab.cli.main import main
from lab.features.html.contents import MOST_LINES, link_citations, read_log_lines, read_sources
from lab.features.html.page import choose_steps, find_stand_ins, write_report
from lab.features.html.timelines import Line, Names, call_lines, list_moments, run_data, step_lines, to_columns
from lab.record.layout import EVENTS, INDEX, LOGS, PLAN, RESULT, SCENARIO, TRACE, rank_log, rank_trace
from lab.record.read import Record
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from tests.golden import golden
from tests.traces import TraceMaker

ORIGIN = 1_700_000_000.0


def page_data(html: str) -> dict[str, Any]:
    """The data that the page unpacks."""
    packed = re.search(r'id="data">([^<]*)<', html)[1]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def print_lines(folder: Path, rank: int, *pieces: tuple[int, bytes]) -> None:
    """What a rank printed: stream and bytes, in order."""
    log = folder / LOGS / rank_log(rank)
    with log.open("ab") as file, (folder / INDEX).open("a") as index:
        for number, (stream, data) in enumerate(pieces):
            index.write(json.dumps([rank, stream, file.tell(), len(data), ORIGIN + number]) + "\n")
            file.write(data)


# ------------------------------------------------------------------------------------------------------------ columns


def column(lines: Iterable[Line], key: str) -> list[Any]:
    """What all lines have under a key."""
    return [line[key] for line in lines]


def test_a_late_rank_is_waited_for_and_itself_waits_for_nobody(tmp_path: Path):
    maker = TraceMaker(tmp_path / "run", 2)
    maker.call(0, "all_reduce", 10, 20, [[1.0]], [[2.0]])
    maker.call(1, "all_reduce", 16, 20, [[1.0]], [[2.0]])
    trace = read_trace(maker.record())
    steps = match_steps(trace)
    calls = list(call_lines(trace, steps))
    assert column(calls, "wait") == [6000, 0]
    assert column(calls, "dur") == [10_000, 4000]
    [line] = step_lines(steps)
    assert (line["last"], line["ready"]) == (1, 6000)


@pytest.mark.parametrize(("error_ms", "last", "ready", "waits"), [(2, 1, 6000, [6000, 0]), (4, -1, -1, [0, 0])])
def test_on_hosts_whose_clocks_do_not_tell_who_was_late_nobody_is_said_to_be(
    tmp_path: Path, error_ms: float, last: int, ready: int, waits: list[int]
):
    maker = TraceMaker(tmp_path / "run", 2)
    maker.on_hosts(error_ms)
    maker.call(0, "all_reduce", 10, 20, [[1.0]], [[2.0]])
    maker.call(1, "all_reduce", 16, 20, [[1.0]], [[2.0]])
    record = maker.record()
    trace = read_trace(record)
    steps = match_steps(trace)
    [line] = step_lines(steps)
    assert (line["last"], line["ready"], column(call_lines(trace, steps), "wait")) == (last, ready, waits)
    lanes = run_data(record, trace, steps, lanes=[[0], [1]])["ranks"]
    assert [lane["off"] for lane in lanes] == [error_ms * 1000] * 2


def test_nobody_waits_for_those_who_only_receive_a_broadcast(tmp_path: Path):
    maker = TraceMaker(tmp_path / "run", 3)
    maker.call(0, "broadcast", 14, 15, [[1.0]], [[1.0]], root=0)
    maker.call(1, "broadcast", 10, 16, [[0.0]], [[1.0]], root=0)
    maker.call(2, "broadcast", 30, 31, [[0.0]], [[1.0]], root=0)
    trace = read_trace(maker.record())
    steps = match_steps(trace)
    assert column(call_lines(trace, steps), "wait") == [0, 4000, 0]
    assert column(step_lines(steps), "last") == [0]


def test_a_rank_that_never_enters_is_waited_for_without_end(tmp_path: Path):
    maker = TraceMaker(tmp_path / "run", 2)
    maker.call(0, "all_reduce", 10, None, [[1.0]])
    trace = read_trace(maker.record(stop=False))
    steps = match_steps(trace)
    [call], [step] = call_lines(trace, steps), step_lines(steps)
    assert (call["dur"], call["wait"]) == (-1, -1)
    assert step["missing"] == (1,)
    assert (step["ready"], step["dur"], step["last"]) == (-1, -1, -1)


def test_columns_hold_differences_of_times_and_indices_of_words() -> None:
    names = Names()
    lines = [{"begin": 5, "op": "send"}, {"begin": 9, "op": "recv"}, {"begin": 7, "op": "send"}]
    assert to_columns(lines, names) == {"begin": [5, 4, -2], "op": [0, 1, 0]}
    assert list(names) == ["send", "recv"]
    assert to_columns([], names) == {"begin": []}


# ----------------------------------------------------------------------------------------------------------- pictures


def test_what_went_wrong_and_every_kind_of_call_get_pictures_first(tmp_path: Path):
    maker = TraceMaker(tmp_path / "run", 2)
    for number in range(30):
        at = "train.py:7" if number == 20 else "train.py:5"
        for rank in (0, 1):
            maker.call(rank, "all_reduce", 10 + number, 10.5 + number, [[1.0]], [[2.0]], at=at)
    maker.call(0, "all_reduce", 90, None, [[1.0]])
    steps = match_steps(read_trace(maker.record(stop=False)))
    chosen = [step.number for step in choose_steps(steps, 3)]
    assert chosen == [1, 21, 31]
    assert find_stand_ins(steps, [steps[0], steps[20], steps[30]])[:3] == [1, 1, 1]
    assert find_stand_ins(steps, [steps[0]])[20] == 0


# --------------------------------------------------------------------------------------------------------------- logs


def test_lines_are_put_together_from_pieces_and_cleaned_of_escapes(tmp_path: Path):
    maker = TraceMaker(tmp_path / "run", 1)
    print_lines(
        maker.path, 0, (1, b"hel"), (2, b"\x1b[31mred\x1b[0m\n"), (1, b"lo\n10%\r20%\rdone\n"), (1, b"\xff no newline")
    )
    lines, left_out = read_log_lines(maker.record())
    assert [(line.stream, line.text) for line in lines] == [
        (1, "hello"), (2, "red"), (1, "done"), (1, "\\xff no newline"),
    ]  # fmt: skip
    assert lines[0].time == ORIGIN
    assert left_out == []


def test_of_a_long_log_the_beginning_and_the_end_are_kept_and_it_says_so(tmp_path: Path):
    maker = TraceMaker(tmp_path / "run", 1)
    print_lines(maker.path, 0, *((1, b"".join(b"line %d\n" % (100 * i + k) for k in range(100))) for i in range(1000)))
    lines, left_out = read_log_lines(maker.record())
    texts = [line.text for line in lines]
    assert len(lines) <= MOST_LINES + 1
    assert texts[0] == "line 0"
    assert texts[-1] == "line 99999"
    assert [line.text for line in lines if line.stream == 0] == [golden(1)]
    assert "rank 0" in left_out[0]
    assert "logs/rank0.log" in left_out[0]


def test_a_line_of_a_megabyte_is_cut(tmp_path: Path):
    maker = TraceMaker(tmp_path / "run", 1)
    print_lines(maker.path, 0, (1, b"x" * 300_000 + b"\n"))
    [line], _ = read_log_lines(maker.record())
    assert len(line.text) < 2100
    assert line.text.endswith("(300000 characters)")


# ------------------------------------------------------------------------------------------------------------ sources


def test_lines_of_known_scripts_become_links_and_nothing_else_becomes_markup(tmp_path: Path):
    maker = TraceMaker(tmp_path / "run", 1)
    (maker.path / "train.py").write_text("import torch\n\n\nx = '<b>'\n")
    known = read_sources(maker.record())
    assert len(known[0].lines) == 4
    assert "<b>" not in str(known[0].lines[3])
    assert link_citations(golden(1), known) == golden(2)
    assert link_citations(golden(3), known).count("<a ") == 1
    assert link_citations("other.py:4", known) == "other.py:4"


# ------------------------------------------------------------------------------------------------------------ moments


def test_a_fault_lasts_until_it_is_healed(tmp_path: Path):
    maker = TraceMaker(tmp_path / "run", 2)
    facts = [
        {"event": "fault", "fault": "delay 5ms", "node": "node1", "time": ORIGIN + 1},
        {"event": "fault", "fault": "kill", "rank": 0, "time": ORIGIN + 2},
        {"event": "fault healed", "fault": "delay 5ms", "time": ORIGIN + 3},
        {"event": "exited", "rank": 0, "code": None, "signal": "SIGKILL", "time": ORIGIN + 4},
    ]
    (maker.path / EVENTS).write_text("".join(json.dumps(fact) + "\n" for fact in facts))
    lives, _, faults = list_moments(maker.record(), ORIGIN)
    assert faults == [
        {"t": 1_000_000, "until": 3_000_000, "ranks": [1], "text": golden(1)},
        {"t": 2_000_000, "until": None, "ranks": [0], "text": golden(2)},
    ]
    assert lives[0] == {"end": 4_000_000, "bad": True, "text": "killed by SIGKILL"}


# --------------------------------------------------------------------------------------------------------- the page


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """The record of a small run."""
    maker = TraceMaker(tmp_path / ".lab" / "runs" / "20260101-000000-train", 2)
    for rank in (0, 1):
        maker.call(rank, "all_reduce", 10 + rank, 20, [[1.0]], [[2.0]])
    print_lines(maker.path, 0, (1, b"hello\n"))
    return maker.record(result={"verdict": "passed", "reason": "well", "scenario": "train", "run": "r"})


def test_the_page_holds_its_data_and_names_no_address(record: Record):
    report = write_report(record)
    html = report.path.read_text()
    data = page_data(html)
    assert data["names"][data["calls"]["op"][0]] == "all_reduce"
    assert data["pictures"]["1"].startswith("<svg")
    assert re.findall(r'(?:src|href)="(?!#|data:)([^"]*)"', html) == []
    assert report.bytes == report.path.stat().st_size


@pytest.mark.parametrize("name", [PLAN, RESULT, SCENARIO, EVENTS, INDEX, TRACE])
def test_a_record_with_something_missing_or_damaged_still_makes_a_report(record: Record, name: str):
    path = record.path / name
    if name == TRACE:
        path = path / rank_trace(1)
        path.write_bytes(path.read_bytes()[:-40] + b"\x00\xff{")
    elif path.exists():
        path.write_bytes(b'{"half')
    report = write_report(record)
    assert "lab" in report.path.read_text()
    if name in (RESULT, TRACE):
        assert report.left_out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (PLAN, "[]"),
        (PLAN, '{"workers": [{}]}'),
        (PLAN, '{"workers": "x"}'),
        (PLAN, '{"workers": [{"rank": "0", "node": 1}]}'),
        (PLAN, '{"timeout_s": "x", "workers": null}'),
        (RESULT, '{"ranks": [{}]}'),
        (RESULT, '{"culprit": "x", "duration_s": "y"}'),
        (RESULT, '{"expectations": [{}], "ranks": [{"rank": 0, "notes": [1]}]}'),
        (EVENTS, '{"event": "note", "rank": "a", "time": 1}\n[]\n5\n'),
        (EVENTS, '{"event": 5, "time": 1e308}\n'),
    ],
)
def test_facts_of_a_wrong_kind_are_left_out(record: Record, name: str, text: str):
    (record.path / name).write_text(text)
    assert "</html>" in write_report(record).path.read_text()


def test_nothing_of_what_ranks_say_is_markup(record: Record):
    attack = "</script><img src=x onerror=alert(1)>"
    print_lines(record.path, 1, (2, attack.encode() + b"\n"))
    result = {"verdict": "failed", "reason": attack, "scenario": attack, "run": "r",
              "culprit": {"rank": 1, "node": attack, "error": attack, "traceback": attack},
              "ranks": [{"rank": 0, "notes": {attack: attack}, "stopped": False}]}  # fmt: skip
    (record.path / RESULT).write_text(json.dumps(result))
    html = write_report(record).path.read_text()
    assert attack not in html
    assert "<img" not in html


# ------------------------------------------------------------------------------------------------------- the command


def test_the_command_writes_the_latest_run_and_says_so_in_json(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert Path(told["path"]).stat().st_size == told["bytes"]
    assert (told["run"], told["calls"], told["steps"], told["log_lines"]) == (record.run, 2, 1, 1)
    assert main(["report", "--out", "here.html"]) == 0
    assert Path("here.html").exists()
    assert "here.html" in capsys.readouterr().out


def test_without_a_display_it_is_not_opened_and_says_so(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert main(["report", "--open"]) == 0
    told = capsys.readouterr()
    assert "report.html" in told.out
    assert told.err == golden(1)


def test_a_place_that_cannot_be_written_is_one_sentence(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--out", "no/such/folder/x.html"]) != 0
    told = capsys.readouterr().err
    assert golden(1) in told
    assert "--out" in told
