"""What scripts print, note and raise does nothing on any page or file that the lab writes of it."""

from __future__ import annotations

import base64
import csv
import gzip
import html
import io
import json
import re
import socket
import struct
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from lab.features.compare.page import write_diff
from lab.features.grade.grades import Grade, Grades, Score
from lab.features.grade.view import grades_csv, write_grades
from lab.features.html.page import result_html, write_report
from lab.features.pictures.model import picture_of
from lab.features.pictures.svg import svg_of
from lab.features.records.records import Suite
from lab.features.suite.cases import compute_rates
from lab.features.suite.page import write_suite
from lab.features.suite.view import junit_xml, suite_markdown
from lab.features.watch.now import Follower
from lab.features.watch.server import Server, _Http, page_of
from lab.record.layout import EVENTS, LOGS, RESULT, SCENARIO, TRACE
from lab.record.read import Record
from lab.record.record_files import MOST_JSON_VALUES
from lab.record.result import Expectation, Output
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from tests.cli.test_damaged_records import make
from tests.features.html.test_hostile_text import assert_harmless, poisoned
from tests.features.suite.cases import attempt, culprit, outcome, rank_with_log, suite
from tests.features.watch.growing import ORIGIN, Growing

CONTROLS = [*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0)]
DIRECTIONS = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
SEPARATORS = [0x2028, 0x2029]
UNSEEN = [0x00AD, 0x034F, 0x115F, 0x180E, 0x200B, 0x200C, 0x200D, 0x2060, 0x2063, 0x3164, 0xFEFF, 0xFFA0, 0xE0041]
NONE = [0xD800, 0xDFFF, 0xFFFE, 0xFFFF]
ACTING = "".join(map(chr, [*CONTROLS, *DIRECTIONS, *SEPARATORS, *UNSEEN, *NONE]))
ACTS = re.compile(f"[{re.escape(ACTING)}]")
EVIL = (
    f"a{'b'.join(ACTING)}c \x1b[31mred\x1b[0m \x1b]0;title\x07 </script><img src=x onerror=evil()> "
    "![x](http://evil.example/p.png) [x](javascript:evil()) <https://evil.example> http://evil.example "
    "www.evil.example mailto:a@evil.example @all @team/x #12 `code` | cell | ``` ~~~ **bold** $x$ &#x202e; {{7*7}} ]]>"
)


def assert_nothing_acts(text: str) -> None:
    found = ACTS.search(text)
    assert found is None, f"{found[0]!r} in {text[max(0, found.start() - 60) : found.end() + 60]!r}" if found else ""


def page_texts(page: str) -> Iterator[str]:
    """A page as a browser shows it, and the data that its scripts show."""
    yield page
    yield html.unescape(page)
    for packed in re.findall(r'id="data">([A-Za-z0-9+/=]+)<', page):
        yield from texts_of(json.loads(gzip.decompress(base64.b64decode(packed))))


def texts_of(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        for name, value in data.items():
            yield name
            yield from texts_of(value)
    elif isinstance(data, list):
        for item in data:
            yield from texts_of(item)
    elif isinstance(data, str):
        yield data


def assert_page_is_harmless(page: str) -> None:
    for text in page_texts(page):
        assert_nothing_acts(text)
    assert_harmless(page)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """A record in which every text of the run is hostile."""
    folder = tmp_path / "runs" / "r"
    make(folder)
    for path in (folder / RESULT, folder / EVENTS, *(folder / TRACE).iterdir()):
        lines = [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines()
        texts = [json.dumps(poisoned(json.loads(line))).replace("evil()", f"evil(){named(ACTING)}") for line in lines]
        path.write_text("".join(f"{text}\n" for text in texts))
    for log in (folder / LOGS).glob("*.log"):
        log.write_bytes(EVIL.encode("utf-8", "surrogatepass")[: log.stat().st_size])
    (folder / SCENARIO).write_text(f"name: x\nlearn: '{printable()}'\n")
    (folder / "train.py").write_text(f"# {printable()}\n")
    return Record(path=folder)


def named(letters: str) -> str:
    return json.dumps(letters)[1:-1]


def printable() -> str:
    return EVIL.encode("utf-8", "ignore").decode().replace("'", "")


def test_the_page_of_a_run_shows_what_would_act(record: Record, tmp_path: Path) -> None:
    page = write_report(record, tmp_path / "page.html").path.read_text()
    assert_page_is_harmless(page)
    assert "\\u202e" in page


def test_the_page_of_a_suite_shows_what_would_act(record: Record, tmp_path: Path) -> None:
    suite_page = write_suite(Suite(name=printable(), records=(record,), planned=2), tmp_path / "suite.html")
    assert_page_is_harmless(suite_page.path.read_text())


def test_the_page_of_two_runs_shows_what_would_act(record: Record, tmp_path: Path) -> None:
    assert_page_is_harmless(write_diff(record, record, tmp_path / "diff.html").path.read_text())


def test_a_notebook_shows_what_would_act(record: Record) -> None:
    shown = result_html(record.result())
    assert_nothing_acts(html.unescape(shown))
    assert_harmless(shown)
    assert "\\u202e" in shown


def test_pictures_show_what_would_act(record: Record) -> None:
    trace = read_trace(record)
    for step in match_steps(trace):
        picture = svg_of(picture_of(step, record.result().expectations, trace.world_size, []), standalone=True)
        assert_nothing_acts(html.unescape(picture))
        ET.fromstring(picture)


def test_the_watch_page_shows_what_would_act(tmp_path: Path) -> None:
    run = Growing(tmp_path / "run")
    run.prints(0, EVIL.encode("utf-8", "surrogatepass") + b"\n", 1)
    noted = {"event": "note", "rank": 1, "time": ORIGIN, "name": printable(), "value": printable()}
    with (run.record.path / EVENTS).open("a") as events:
        events.write(json.dumps(noted) + "\n")
    run.made.call(0, "all_reduce", 10, None, [[1.0]], red="SUM", at=f"train.py{printable()}:3")
    run.write()
    follower = Follower(run.record)
    now, _ = follower.poll(ORIGIN + 2)
    server = Server(page_of(printable()))
    sent: list[bytes] = []
    try:
        server.show(replace(now, scenario=printable(), remarks=(printable(),)), follower)
        server.close()
        server.push_to(sent.append, 0)
    finally:
        server.stop()
        run.end()
    assert_page_is_harmless(server.page.decode())
    told = json.loads(b"".join(sent).decode().partition("data: ")[2])
    assert any("\\u202e" in line["text"] for line in told["lines"])
    for text in texts_of(told):
        assert_nothing_acts(text)


@pytest.mark.parametrize("attack", ["path", "origin", "reset"])
def test_no_request_to_the_watch_page_reaches_the_terminal(
    attack: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each program of this machine can send it anything, without the token."""
    server, handled = Server(b"page"), threading.Event()
    shut_down = _Http.shutdown_request
    monkeypatch.setattr(_Http, "shutdown_request", lambda self, sent: (shut_down(self, sent), handled.set()))
    address = f"127.0.0.1:{server.port}"
    requests = {
        "path": f"GET http://[/\x1b[2J HTTP/1.1\r\nHost: {address}\r\n\r\n",
        "origin": f"POST /x/step HTTP/1.1\r\nHost: {address}\r\nOrigin: http://[\r\n\r\n",
        "reset": "GET / HT",
    }
    try:
        with socket.create_connection(("127.0.0.1", server.port)) as stranger:
            stranger.sendall(requests[attack].encode())
            if attack == "reset":
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            while attack != "reset" and stranger.recv(4096):
                pass
        assert handled.wait(20)
    finally:
        server.stop()
    shown = capfd.readouterr()
    assert shown.out + shown.err == ""


def grades_of_a_stranger() -> Grades:
    text = printable()
    score = Score(what=f"note {text}", met=False, messages=(text,))
    grade = Grade(name=text, verdict="failed", reason=text, scores=(score,), messages=(text,), traceback=text)
    return Grades(scenario=text, engine="docker", isolation=Grades.UNTRUSTED, grades=(grade,))


def test_pages_of_grades_show_what_would_act(tmp_path: Path) -> None:
    index, *pages = write_grades(grades_of_a_stranger(), tmp_path / "feedback")
    for path in (index, *pages):
        assert_page_is_harmless(path.read_text())


@pytest.mark.parametrize("end", ["\n", "\r", "\u2028", "\x0b"])
def test_no_name_of_a_note_begins_a_line(end: str) -> None:
    """GitHub's jobs take lines that begin with `::` for commands."""
    sentence = Expectation(what=f"note x{end}::add-mask::y", rank=0, expected=1, got=f"{end}::add-mask::z").sentence()
    assert len(sentence.splitlines()) == 1


def test_pages_of_grades_are_there_whatever_one_submission_noted(tmp_path: Path) -> None:
    make(tmp_path / "r")
    notes = ", ".join(["[]"] * (MOST_JSON_VALUES + 1))
    (tmp_path / "r" / RESULT).write_text(
        f'{{"verdict": "failed", "ranks": [{{"rank": 0, "notes": {{"x": [{notes}]}}}}]}}'
    )
    grades = grades_of_a_stranger()
    large = replace(grades.grades[0], name="large", path=tmp_path / "r")
    pages = write_grades(replace(grades, grades=(large, *grades.grades)), tmp_path / "pages")
    assert len(pages) == 3
    assert all(page.is_file() for page in pages)


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t=", "\r=", " =", "\u200b=", "\ufeff=", "＝", "|", "\n="])
def test_no_cell_of_a_sheet_is_a_formula_or_acts(begin: str) -> None:
    grades = grades_of_a_stranger()
    name = f"{begin}cmd|'/C calc'!A0 {EVIL}"
    grades = replace(grades, grades=(replace(grades.grades[0], name=name, reason=name),))
    for row in csv.reader(io.StringIO(grades_csv(grades))):
        for cell in row:
            assert_nothing_acts(cell)
            assert not cell.lstrip().startswith(("=", "+", "-", "@", "|", "%", "＝", "＋")), cell


def hostile_suite(tmp_path: Path) -> Any:
    rank = rank_with_log(tmp_path / "rank0.log", printable())
    who = culprit(error=EVIL, traceback=f"{EVIL}\n```\n</code>\n    {EVIL}")
    return suite(
        outcome(attempt("failed", EVIL, culprit=who, ranks=(rank,), path=tmp_path / printable()[-20:]), name=EVIL),
        outcome(attempt("error", f"- {EVIL}", hint=EVIL), attempt("passed"), name=f"1. {EVIL}"),
        stopped=EVIL,
        planned=4,
    )


def assert_markdown_is_text(text: str) -> None:
    """Nothing in a page of Markdown but headings, tables and text of the lab's own; nobody is mentioned."""
    for line in text.splitlines():
        assert_nothing_acts(line)
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for token in tokens:
        assert token.type not in ("html_block", "fence"), token
        for inner in token.children or ():
            assert inner.type in ("text", "code_inline", "softbreak", "text_special", "strong_open", "strong_close"), (
                inner
            )
            if inner.type == "code_inline":
                assert inner.content in ("@", "#")
    page = MarkdownIt("commonmark").enable("table").render(text)
    rendered = re.sub(r"<(code|pre)>.*?</\1>", "\0", page, flags=re.DOTALL)
    assert not re.search(r"@\w|#\d", rendered), "a mention"
    outside = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    assert not re.search(r"(?i)https?://|www\.\w|mailto:", outside), "an address that becomes a link by itself"


def test_markdown_of_a_suite_is_text(tmp_path: Path) -> None:
    text = suite_markdown(hostile_suite(tmp_path))
    assert_markdown_is_text(text)
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == 1 + 2


def test_markdown_of_rates_is_text(tmp_path: Path) -> None:
    outcomes = [outcome(attempt("failed", EVIL), name=EVIL, repetition=n, repetitions=2, seed=n) for n in (1, 2)]
    assert compute_rates(outcomes)
    assert_markdown_is_text(suite_markdown(suite(*outcomes, seed=1)))


def test_junit_of_a_suite_is_valid_and_shows_what_would_act(tmp_path: Path) -> None:
    text = junit_xml(hostile_suite(tmp_path))
    whole = ET.fromstring(text)
    for element in whole.iter():
        for value in (*element.attrib.values(), element.text or "", element.tail or ""):
            assert_nothing_acts(value)
    assert "\\u202e" in text


def test_files_of_a_run_are_named_harmlessly(record: Record, tmp_path: Path) -> None:
    result = json.loads((record.path / RESULT).read_text())
    made = Output(path=f"x{printable()[:400]}", ranks=(0,), bytes=3)
    result |= {"outputs": [{"path": made.path, "ranks": [0], "bytes": 3}], "outputs_left_out": [printable()]}
    (record.path / RESULT).write_text(json.dumps(result))
    assert_page_is_harmless(write_report(record, tmp_path / "page.html").path.read_text())
