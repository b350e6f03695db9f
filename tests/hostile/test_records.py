"""A record from somebody else: no view follows a link, waits for a pipe, fills the memory, or writes elsewhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lab.errors import RecordError
from lab.features.lessons import PREDICTION
from lab.features.pytest.items import last_lines_text
from lab.features.suite.view import last_lines
from lab.node.files import remove_tree
from lab.record.events import Over
from lab.record.layout import ATTEMPTS, EVENTS, INDEX, LOGS, PLAN, RESULT, SCENARIO, STARTED, TRACE
from lab.record.result import Result
from lab.record.write import RecordWriter
from tests.cli.test_damaged_records import make
from tests.golden import golden
from tests.hostile.limited import Forks, Request
from tests.hostile.view_record import VIEWS

pytestmark = [pytest.mark.timeout(200), pytest.mark.xdist_group("tests/hostile/test_records.py")]  # see `forks`
SECRET = "SECRET-7f3a9c"
VICTIM = "this file belongs to the user\n"
SLOWEST_VIEW_S = 20
ACTING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What changes a terminal or the direction of text, except colors, which `NO_COLOR` turns off."""
OUTPUT, LAUNCHER, CHECK = "files/out.txt", f"{LOGS}/launcher-node0.log", f"{LOGS}/check.log"
LOG, RANK_TRACE = f"{LOGS}/rank0.log", f"{TRACE}/rank0.jsonl"
FIRST = f"{ATTEMPTS}/0"
FILES = [RESULT, PLAN, EVENTS, SCENARIO, "train.py", LOG, CHECK, LAUNCHER, INDEX, RANK_TRACE, OUTPUT, PREDICTION,
         STARTED, f"{FIRST}/{RESULT}", f"{FIRST}/{LOG}", f"{FIRST}/{EVENTS}", f"{FIRST}/{PLAN}"]  # fmt: skip
FOLDERS = [LOGS, TRACE, "files", ATTEMPTS, FIRST, f"{FIRST}/{LOGS}"]
WRITTEN = ["report.html", ".report.html.new", "diff.html", ".diff.html.new", "trace.pftrace", "trace.chrome.json",
           f"{FIRST}/report.html", f"{FIRST}/.report.html.new"]  # fmt: skip
WRITTEN_INTO = ["flight-recorder"]


class Runs(NamedTuple):
    """A folder in which the lab is called: two good records and `r`, and what does not belong to them."""

    folder: Path
    forks: Forks

    @property
    def record(self) -> Path:
        return self.folder / ".lab" / "runs" / "r"

    @property
    def outside(self) -> Path:
        return self.folder / "outside"


class Attack(NamedTuple):
    """One change of the record `r`."""

    name: str
    change: Callable[[Runs], None]


def make_record(folder: Path) -> None:
    """Write a record with every file that the lab writes."""
    make(folder)
    (folder / SCENARIO).write_text("script: train.py\nname: train\nlearn: Ranks add numbers.\nnodes: 2\n")
    (folder / "train.py").write_text("import torch\nraise ValueError('no')\n# the third line\n" * 20)
    plan = json.loads((folder / PLAN).read_text())
    plan["launcher"] = "torchrun"
    (folder / PLAN).write_text(json.dumps(plan))
    (folder / LAUNCHER).write_text("the launcher begins\n")
    (folder / CHECK).write_text("the check is content\n")
    with (folder / INDEX).open("a") as index:
        index.write("[-1, 1, 0, 21, 1700000001.0]\n")
    (folder / OUTPUT).parent.mkdir()
    (folder / OUTPUT).write_text("a file of the run\n")
    result = json.loads((folder / RESULT).read_text())
    result["outputs"] = [{"path": "out.txt", "ranks": [0], "bytes": 18}]
    (folder / RESULT).write_text(json.dumps(result))
    (folder / PREDICTION).write_text(json.dumps({"lesson": "train", "question": "what?", "prediction": "a"}))
    (folder / STARTED).write_text(json.dumps({"ranks": [], "world_size": 0, "aside": [1 << 40]}))
    first = folder / FIRST
    first.parent.mkdir()
    shutil.copytree(folder, first, ignore=shutil.ignore_patterns(ATTEMPTS, "files"))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records before any attack."""
    folder = tmp_path_factory.mktemp("records")
    make_record(folder / "good")
    shutil.copytree(folder / "good", folder / "r")
    return folder


@pytest.fixture(scope="module")
def forks(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """What views of a whole record import is imported already."""
    made, folder = Forks(), tmp_path_factory.mktemp("learned")
    shutil.copytree(template, folder / ".lab" / "runs")
    made.learn(folder, *VIEWS)
    yield made
    made.close()


@pytest.fixture
def runs(template: Path, tmp_path: Path, forks: Forks) -> Iterator[Runs]:
    """Fresh copies of the records, and files outside of them that no view may show or change."""
    found = Runs(tmp_path, forks)
    shutil.copytree(template, tmp_path / ".lab" / "runs")
    found.outside.mkdir()
    (found.outside / "victim").write_text(VICTIM)
    (found.outside / "folder").mkdir()
    yield found
    assert remove_tree(tmp_path)  # pytest removes no folders that are so deep


# -- kinds of attacks


def with_secret(data: bytes, name: str) -> bytes:
    """The content of a file of a record, still valid, with the secret where views show it."""
    if name.endswith(RESULT):
        return json.dumps({**json.loads(data), "reason": SECRET, "scenario": SECRET}).encode()
    if name.endswith(PLAN):
        return json.dumps({**json.loads(data), "scenario": SECRET, "cluster": SECRET, "script": SECRET}).encode()
    if name.endswith(PREDICTION):
        return json.dumps({**json.loads(data), "question": SECRET, "insight": SECRET}).encode()
    if name.endswith(STARTED):
        return json.dumps({"ranks": [{"rank": 0, "node": SECRET, "worker": 0, "process": 3}], "world_size": 1}).encode()
    if name.endswith(EVENTS):
        return data.replace(b"ValueError: no", SECRET.encode()) + data.replace(b'"x"', json.dumps(SECRET).encode())
    if name.endswith(".jsonl"):
        return data.replace(b"train.py", SECRET.encode()).replace(b"[0,", b"[1,")
    return data.replace(b"o", SECRET.encode())


def link(name: str) -> Attack:
    """The file is a symbolic link to a file outside with the same format."""

    def change(runs: Runs) -> None:
        target = runs.outside / name.replace("/", "-")
        target.write_bytes(with_secret((runs.record / name).read_bytes(), name))
        (runs.record / name).unlink()
        (runs.record / name).symlink_to(target)

    return Attack(f"link:{name}", change)


def link_to_device(name: str) -> Attack:
    """The file is a link to a device that never ends."""

    def change(runs: Runs) -> None:
        (runs.record / name).unlink()
        (runs.record / name).symlink_to("/dev/zero")

    return Attack(f"zero:{name}", change)


def pipe(name: str) -> Attack:
    """The file is a pipe into which nobody writes."""

    def change(runs: Runs) -> None:
        (runs.record / name).unlink()
        os.mkfifo(runs.record / name)

    return Attack(f"pipe:{name}", change)


def folder_for_file(name: str) -> Attack:
    """A folder is where a file should be."""

    def change(runs: Runs) -> None:
        (runs.record / name).unlink()
        (runs.record / name / "inner").mkdir(parents=True)

    return Attack(f"folder:{name}", change)


def sparse(name: str) -> Attack:
    """The file has a terabyte, and takes no space."""

    def change(runs: Runs) -> None:
        os.truncate(runs.record / name, 1 << 40)

    return Attack(f"sparse:{name}", change)


def socket_for_file(name: str) -> Attack:
    """A socket is where a file should be."""

    def change(runs: Runs) -> None:
        (runs.record / name).unlink()
        here = os.getcwd()
        os.chdir((runs.record / name).parent)  # the path of a socket has 107 bytes at most
        try:
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(Path(name).name)
        finally:
            os.chdir(here)

    return Attack(f"socket:{name}", change)


def link_folder(name: str) -> Attack:
    """The folder is a link to one outside, in which every file has the secret."""

    def change(runs: Runs) -> None:
        target = runs.outside / name.replace("/", "-")
        shutil.move(runs.record / name, target)
        for path in target.rglob("*"):
            if path.is_file():
                path.write_bytes(with_secret(path.read_bytes(), str(path)))
        (runs.record / name).symlink_to(target)

    return Attack(f"link:{name}/", change)


def link_written(name: str) -> Attack:
    """What a view writes into the record is a link to a file of the user."""

    def change(runs: Runs) -> None:
        (runs.record / name).symlink_to(runs.outside / "victim")

    return Attack(f"written:{name}", change)


def link_written_folder(name: str) -> Attack:
    """What a view fills, or would take for a folder, is a link to a folder of the user."""

    def change(runs: Runs) -> None:
        (runs.record / name).symlink_to(runs.outside / "folder")

    return Attack(f"filled:{name}", change)


def content(name: str, file: str, make_content: bytes | Callable[[bytes], bytes]) -> Attack:
    """The file has another content."""

    def change(runs: Runs) -> None:
        path = runs.record / file
        path.write_bytes(make_content(path.read_bytes()) if callable(make_content) else make_content)

    return Attack(f"{name}:{file}", change)


def edit(name: str, file: str, change_data: Callable[[Any], Any]) -> Attack:
    """The JSON of the file has another value, or each line of it."""

    def changed(data: bytes) -> bytes:
        lines = [data] if file.endswith(".json") else data.splitlines()
        return b"\n".join(json.dumps(change_data(json.loads(line))).encode() for line in lines) + b"\n"

    return content(name, file, changed)


def many_workers(plan: dict[str, Any]) -> dict[str, Any]:
    workers = [{"rank": rank, "node": f"node{rank}", "local_rank": 0, "env": {"A": "b"}} for rank in range(100_000)]
    return {**plan, "workers": workers, "nnodes": 100_000}


def many_ranks(result: dict[str, Any]) -> dict[str, Any]:
    one = result["ranks"][1]
    return {**result, "ranks": [{**one, "rank": rank, "error": f"error {rank * 7919}"} for rank in range(100_000)]}


def far_ranks(data: Any) -> Any:
    """Every rank is another one than there can be."""
    if isinstance(data, dict):
        return {key: 10**9 if key in ("rank", "worker", "number") else far_ranks(value) for key, value in data.items()}
    return [far_ranks(one) for one in data] if isinstance(data, list) else data


def odd_times(factor: float) -> Callable[[Any], Any]:
    def change(data: Any) -> Any:
        times = ("time", "duration_s", "t", "offset_s", "error_s", "monotonic_s", "raised", "timeout_s")
        if isinstance(data, dict):
            return {key: factor if key in times else change(value) for key, value in data.items()}
        return [change(one) for one in data] if isinstance(data, list) else data

    return change


def acting_text(data: Any) -> Any:
    """Every text ends in a title for the terminal, colors that do not end, and a change of direction."""
    if isinstance(data, str):
        return data + "\x1b]0;owned\x07\x1b[2J\u202e\u2066\x9b31m\r\x00"
    if isinstance(data, dict):
        return {
            key: value if key in ("k", "event", "verdict", "op") else acting_text(value) for key, value in data.items()
        }
    return [acting_text(one) for one in data] if isinstance(data, list) else data


def broken_lines(data: Any) -> Any:
    """Every text, with the names of operations, goes on in another line."""
    if isinstance(data, str):
        return f"{data}\nlab: passed\n"
    if isinstance(data, dict):
        return {key: value if key in ("k", "event", "verdict") else broken_lines(value) for key, value in data.items()}
    return [broken_lines(one) for one in data] if isinstance(data, list) else data


def outside_paths(data: dict[str, Any]) -> dict[str, Any]:
    """Every name leads out of the record."""
    up = "../../../outside/secret.txt"
    changed = {**data, "scenario": f"../{up}", "script": up, "run": up, "path": "/etc", "outputs_folder": "/etc"}
    changed["outputs"] = [{"path": path, "ranks": [0], "bytes": 6} for path in (f"../{up}", up, "/etc/passwd", "..")]
    changed["workers"] = [{"rank": 0, "node": f"x/../{up}"}, {"rank": 1, "node": "x/../../../../outside/secret"}]
    return changed


def leave_paths(runs: Runs) -> None:
    """Names that lead out of the record, and the folder and file that they need."""
    (runs.outside / "secret.txt").write_text(SECRET)
    (runs.outside / "secret.log").write_text(SECRET)
    (runs.record / LOGS / "launcher-x").mkdir()
    for name in (RESULT, PLAN):
        (runs.record / name).write_text(json.dumps(outside_paths(json.loads((runs.record / name).read_text()))))
    lines = [json.loads(line) for line in (runs.record / EVENTS).read_text().splitlines()]
    for line in lines:
        if "traceback" in line:
            line["traceback"] = (
                'Traceback (most recent call last):\n  File "../../../outside/secret.txt", line 1, in f\n'
            )
    (runs.record / EVENTS).write_text("".join(json.dumps(line) + "\n" for line in lines))


def many_traces(runs: Runs) -> None:
    """A trace for each of many processes, and for ranks that cannot be."""
    whole = (runs.record / RANK_TRACE).read_bytes()
    for rank in (*range(2, 1500), 10**9, int("9" * 200)):
        (runs.record / TRACE / f"rank{rank}.jsonl").write_bytes(whole[:300])


def many_started(_: Any) -> Any:
    return {
        "ranks": [{"rank": r, "node": "node0", "worker": 0, "process": r + (1 << 40)} for r in range(100_000)],
        "world_size": 10**9,
    }


def deep_folders(runs: Runs) -> None:
    """Folders in each other, deeper than a path can be, in the record and in its files."""
    for name in ("files", TRACE):
        here = os.open(runs.record / name, os.O_RDONLY)
        for _ in range(3000):
            os.mkdir("deeper", dir_fd=here)
            inner = os.open("deeper", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = inner
        os.close(here)


def yaml_bomb(depth: int) -> bytes:
    """Text that grows by a factor of ten with each line where aliases are written out."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, depth)]
    return "\n".join(lines).encode()


def repeated_index(_: bytes) -> bytes:
    """Each line of the index has the same part of the log once more."""
    return b"[0, 1, 0, 1000000, 1700000000.5]\n" * 200_000


def many_events(data: bytes) -> bytes:
    """Each of 100,000 ranks starts, notes something and fails."""
    lines = [json.loads(line) for line in data.splitlines() if b'"rank": 0' in line or b'"rank": 1' in line][:3]
    return b"".join(
        json.dumps({**line, "rank": rank, "node": f"node{rank}"}).encode() + b"\n"
        for rank in range(100_000)
        for line in lines
    )


def many_printed(_: bytes) -> bytes:
    return b"".join(b"[%d, 1, 0, 13, 1700000000.5]\n" % rank for rank in range(100_000))


def repeat_log(runs: Runs) -> None:
    (runs.record / INDEX).write_bytes(repeated_index(b""))
    (runs.record / LOG).write_bytes(b"x" * 1_000_000)


ACTING_BYTES = b"\x1b]0;owned\x07\x1b[2J\xe2\x80\xae\x9b\n"
BIG_INT = b"1" * 5000
DEEP = b'{"verdict": "failed", "event": "note", "k": "begin", "workers": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
MANY_VALUES = b'{"verdict": "failed", "workers": [' + b"[0]," * 5_000_000 + b"[0]]}"
JSON_FILES = [RESULT, PLAN, EVENTS, INDEX, RANK_TRACE, PREDICTION, STARTED, f"{FIRST}/{RESULT}"]
ATTACKS = [
    *map(link, FILES),
    *map(link_to_device, FILES),
    *map(pipe, FILES),
    *map(folder_for_file, FILES),
    *map(sparse, FILES),
    *map(socket_for_file, [RESULT, LOG, RANK_TRACE, OUTPUT]),
    *map(link_folder, FOLDERS),
    *map(link_written, WRITTEN),
    *map(link_written_folder, [*WRITTEN_INTO, "report.html", "diff.html", "trace.pftrace"]),
    *(content("deep", name, DEEP) for name in JSON_FILES),
    *(content("bigint", name, lambda data: data.replace(b"1", BIG_INT, 3)) for name in JSON_FILES),
    *(content("bytes", name, lambda data: data.replace(b"no", b"n\xff\xfe\xc0\x80")) for name in [*JSON_FILES, LOG]),
    *(content("values", name, MANY_VALUES) for name in [RESULT, PLAN, EVENTS, STARTED, RANK_TRACE]),
    *(edit("ranks", name, far_ranks) for name in (RESULT, PLAN, EVENTS, RANK_TRACE, STARTED)),
    *(edit(f"time {t:g}", name, odd_times(t)) for name in (RESULT, PLAN, EVENTS, RANK_TRACE) for t in (-1e15, 1e18)),
    *(edit("text", name, acting_text) for name in (RESULT, PLAN, EVENTS, RANK_TRACE, PREDICTION)),
    *(edit("breaks", name, broken_lines) for name in (RANK_TRACE, EVENTS, PLAN, RESULT)),
    *(content("text", name, lambda data: data + ACTING_BYTES) for name in (SCENARIO, "train.py", LOG)),
    edit("workers", PLAN, many_workers),
    edit("ranks 100000", RESULT, many_ranks),
    edit("started", STARTED, many_started),
    content("ranks 100000", EVENTS, many_events),
    content("ranks 100000", INDEX, many_printed),
    content("nan", RESULT, lambda data: data.replace(b"1.0", b"NaN").replace(b"2.5", b"-Infinity")),
    content("twice", RESULT, lambda data: b'{"verdict": [], ' + data[1:-1] + b', "ranks": 7, "verdict": "hung"}'),
    content("bomb", SCENARIO, yaml_bomb(9)),
    content("itself", SCENARIO, b"a: &a\n  b: *a\n  c: [*a]\n"),
    content("numbers", SCENARIO, b"a: 0x" + b"f" * 9000 + b"\nb: 1" + b":59" * 4000 + b"\nc: 2001-13-40\nd: .nan\n"),
    content("nodes", SCENARIO, b"a: [" + b"[]," * 3_000_000 + b"]"),
    Attack("paths", leave_paths),
    Attack("traces", many_traces),
    Attack("deep folders", deep_folders),
    Attack("index", repeat_log),
]  # fmt: skip


# -- what is checked


def call_views(runs: Runs, views: list[list[str]] | None = None) -> list[dict[str, Any]]:
    """Call the verbs in a process with little memory; the answers, which come before a deadline."""
    words = [json.dumps(views)] if views is not None else []
    environment = {"NO_COLOR": "1", "HOME": str(runs.folder), "TERM": "dumb"}
    out, err = runs.folder / "answers.jsonl", runs.folder / "errors.txt"
    request = Request("tests.hostile.view_record", words, str(runs.folder), str(out), str(err), environment)
    runs.forks.send(request)
    found = [json.loads(line) for line in (runs.folder / "answers.jsonl").read_text().splitlines()]
    asked = VIEWS if views is None else views
    errors_text = (runs.folder / "errors.txt").read_text()
    assert len(found) == len(asked), f"{asked[len(found)]} gave no answer: {errors_text[-2000:]}"
    return found


def text_of(path: Path) -> str:
    return path.read_text(errors="surrogateescape")


def written_files(runs: Runs) -> list[Path]:
    """Files that views wrote: pages and exports, in the record and beside it."""
    own = {"answers.jsonl", "errors.txt"}
    found = []
    for top, _, names in os.walk(runs.folder):
        if Path(top).is_relative_to(runs.outside):
            continue
        paths = [Path(top, name) for name in names if name not in own]
        found += [path for path in paths if path.suffix in (".html", ".pftrace", ".et", ".svg", ".json") and
                  stat.S_ISREG(path.lstat().st_mode) and path.lstat().st_size < 1 << 28]  # fmt: skip
    return found


def check_answers(runs: Runs, answers: list[dict[str, Any]]) -> None:
    """Every answer is in time, an answer or one sentence, and holds nothing from outside of the record."""
    for answer in answers:
        words, files = answer["words"], runs.folder / answer["files"]
        out, err = text_of(files.with_suffix(".out")), text_of(files.with_suffix(".err"))
        assert answer["code"] in (0, 1, 2, 4), (words, answer["code"], err)
        assert "Traceback (most recent call last)" not in err, (words, err)
        assert "unexpected error" not in out + err, (words, err)
        told = (
            any(line.startswith("lab: ") for line in err.splitlines()) or words[0] == "watch" or "--baseline" in words
        )
        assert answer["code"] == 0 or told, (words, answer["code"], out[-500:], err)
        assert SECRET not in out + err, (words, "shows a file from outside", out[-300:], err[-300:])
        acting = ACTING.search(out.replace("\r", "") if words[0] in ("logs", "watch") else out) or ACTING.search(err)
        assert acting is None, (words, acting, out[:300], err[:300])
        assert answer["seconds"] < SLOWEST_VIEW_S, (words, answer["seconds"])
        if "--json" in words and answer["code"] == 0 and words[0] not in ("logs", "watch"):
            json.loads(out)
    assert (runs.outside / "victim").read_text() == VICTIM
    assert not list((runs.outside / "folder").iterdir())
    for path in written_files(runs):
        assert SECRET.encode() not in path.read_bytes(), path


SLOW = {"traces", "ranks 100000", "started", "workers", "index"}
"""Kinds that take 15 s and more."""


def with_marks() -> Iterator[Any]:
    """Every attack. The first of a kind is usual, and so are links and pipes for main files; others are long."""
    seen: set[str] = set()
    for attack in ATTACKS:
        kind, _, file = attack.name.partition(":")
        usual = kind not in {*seen, *SLOW} or (
            kind in ("link", "pipe") and file in (RESULT, LOG, PLAN, SCENARIO, RANK_TRACE)
        )
        seen.add(kind)
        yield pytest.param(attack, id=attack.name, marks=[] if usual else pytest.mark.long)


@pytest.mark.sample(16)  # one rule for all views
@pytest.mark.parametrize("attack", list(with_marks()))
def test_no_view_leaves_the_record(runs: Runs, attack: Attack) -> None:
    attack.change(runs)
    answers = call_views(runs)
    check_answers(runs, answers)
    listed = text_of((runs.folder / answers[0]["files"]).with_suffix(".out"))
    assert golden(1) in listed, "a hostile record hides the others"


def test_views_show_a_record_that_is_whole(runs: Runs) -> None:
    answers = call_views(runs)
    check_answers(runs, answers)
    allowed = {("watch", "r"), ("watch", "r", "--json"), ("report", "--suite", "r")}
    assert [one["words"] for one in answers if one["code"] and tuple(one["words"]) not in allowed] == []


def test_prune_removes_deep_folders_and_follows_no_link(runs: Runs) -> None:
    """A link in the folder of runs stays as it is; so does what a link in a record leads to."""
    folder, target = runs.record.parent, runs.outside / "record"
    shutil.copytree(runs.record, target)
    (folder / "linked").symlink_to(target)
    (folder / "00000000-000000-first").symlink_to(target)
    (runs.record / LOGS / "away").symlink_to(runs.outside)
    deep_folders(runs)
    mine = subprocess.run(["find", str(target), "-type", "f"], capture_output=True, text=True, check=True).stdout
    answers = call_views(runs, [["runs"], ["runs", "--prune", "--keep", "0"], ["runs"]])
    check_answers(runs, answers)
    assert [answer["code"] for answer in answers] == [0, 0, 0]
    assert all(path.is_symlink() for path in folder.iterdir())
    assert subprocess.run(["find", str(target), "-type", "f"], capture_output=True, text=True).stdout == mine
    assert (runs.outside / "victim").read_text() == VICTIM


def test_a_link_in_the_folder_of_runs_is_no_run(runs: Runs) -> None:
    """`latest` may lead anywhere: what the user names is shown, what only lies there is not."""
    elsewhere = runs.outside / "elsewhere"
    shutil.copytree(runs.record, elsewhere)
    result = elsewhere / RESULT
    result.write_bytes(with_secret(result.read_bytes(), RESULT))
    (runs.record.parent / "latest").symlink_to(elsewhere)
    os.utime(elsewhere / PLAN, (2e9, 2e9))
    views = [["runs"], ["show"], ["show", "latest"], ["report", "--suite"], ["diff", "good"]]
    answers = call_views(runs, views)
    check_answers(runs, answers)
    assert [answer["code"] for answer in answers[:3]] == [0, 0, 2]
    [named] = call_views(runs, [["show", ".lab/runs/latest"]])
    assert SECRET in text_of((runs.folder / named["files"]).with_suffix(".out"))


def test_a_view_names_what_it_refuses(runs: Runs) -> None:
    link(RESULT).change(runs)
    link(LOG).change(runs)
    pipe(RANK_TRACE).change(runs)
    answers = call_views(runs, [["show", "r"], ["logs", "r", "--rank", "0"], ["trace", "r"], ["runs"]])
    said = [text_of((runs.folder / answer["files"]).with_suffix(".err")) for answer in answers]
    assert [answer["code"] for answer in answers] == [1, 1, 1, 0]
    assert golden(1) in said[0]
    assert golden(2) in said[1]
    assert golden(3) in said[2]
    assert golden(4) in text_of((runs.folder / answers[3]["files"]).with_suffix(".out"))


def test_the_python_api_and_junit_refuse_the_same(runs: Runs) -> None:
    result = Result.load(runs.record)
    for name in (LOG, f"{LOGS}/rank1.log"):
        link(name).change(runs)
    with pytest.raises(RecordError, match=golden(1)):
        _ = result.ranks[0].log
    with pytest.raises(RecordError, match=golden(1)):
        list(last_lines(result))
    with pytest.raises(RecordError, match=golden(1)):
        last_lines_text(result)
    sparse_log = runs.record.parent / "good" / LOG
    os.truncate(sparse_log, 1 << 40)
    with pytest.raises(RecordError, match=golden(2)):
        _ = Result.load(sparse_log.parent.parent).ranks[0].log
    link(RESULT).change(runs)
    with pytest.raises(RecordError, match=golden(1)):
        Result.load(runs.record)


def write_all(writer: RecordWriter) -> None:
    """Write into each folder of a record."""
    for rank in range(2):
        writer.output(rank, 1, b"printed\n", 1.0)
        writer.trace(rank, b"{}\n")
        writer.begin_attempt()


@pytest.mark.parametrize("name", [LOGS, TRACE, ATTEMPTS])
def test_a_run_that_goes_on_follows_no_link_in_its_record(tmp_path: Path, name: str) -> None:
    """Somebody puts a link into the record while the run writes it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    writer = RecordWriter(tmp_path / "runs", "train")
    if name == LOGS:
        shutil.move(writer.path / LOGS, tmp_path / "moved")
    (writer.path / name).symlink_to(outside)
    with pytest.raises(RecordError, match=golden(1)):
        write_all(writer)
    writer.close()
    assert not list(outside.iterdir())


def test_a_run_that_goes_on_writes_through_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text(VICTIM)
    writer = RecordWriter(tmp_path / "runs", "train")
    for name in (EVENTS, LOG, PLAN, f".{PLAN}.new", RESULT, f".{RESULT}.new", SCENARIO, "train.py"):
        (writer.path / name).symlink_to(victim)
    script = tmp_path / "train.py"
    script.write_text("print()\n")
    writer.describe("script: train.py\n", script, {"run": "r"})
    with pytest.raises(RecordError, match=golden(1)):
        writer.output(0, 1, b"printed\n", 1.0)
    with pytest.raises(RecordError, match=golden(1)):
        writer.event(Over(1.0))
    writer.write_result(Result(verdict="passed"), -1)
    writer.close()
    assert victim.read_text() == VICTIM
    assert not (writer.path / RESULT).is_symlink()
    writer.discard()
    assert victim.read_text() == VICTIM
