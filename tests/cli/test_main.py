"""The command line as it is called: verbs, options, errors, exit codes, and what it costs to start."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import lab
from lab.cli import call as subject
from lab.cli.main import main, make_printable
from lab.cli.overview import VERBS, list_all_verbs
from lab.engine.doctor import find_namesakes
from lab.errors import (
    ClusterBusy,
    ClusterError,
    ClusterUnfit,
    EngineUnavailable,
    ImageError,
    ImageUnfit,
    LabError,
    RecordError,
    ScenarioError,
    UsageError,
)
from tests.golden import golden

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, own_homes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command line."""
    try:
        code = main(words)
    except SystemExit as end:
        code = int(end.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


# -- verbs


@pytest.mark.parametrize("verb", list_all_verbs())
def test_every_verb_explains_itself(capsys: pytest.CaptureFixture[str], verb: str):
    code, out, err = call(capsys, verb, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: lab {verb}")
    assert list_all_verbs()[verb][1:] in " ".join(out.split())  # it begins with a capital letter


@pytest.mark.features
def test_help_shows_everyday_options_and_help_all_the_others(capsys: pytest.CaptureFixture[str]):
    code, short, _ = call(capsys, "run", "--help")
    assert (code, "--nodes" in short, "--fault" in short, "--max-output" in short) == (0, True, True, False)
    assert 10 <= len(re.findall(r"^  --", short, re.MULTILINE)) <= 16
    code, long, _ = call(capsys, "run", "--help-all")
    assert (code, "--nodes" in long, "--schedules" in long, "--max-output" in long) == (0, True, True, True)
    groups = re.findall(r"^(\w+):$", long, re.MULTILINE)
    assert groups == ["options", "ranks", "cluster", "record", "output", "faults"]


@pytest.mark.parametrize("verb", list_all_verbs())
def test_every_verb_has_a_module_with_its_name_and_its_two_functions(verb: str):
    module = subject.load_verb(verb)
    assert callable(module.add_arguments)
    assert callable(module.run)
    assert isinstance(module, subject.Command) or module.__doc__.startswith(f"`lab {verb}")


def test_every_module_of_a_verb_is_listed():
    modules = {path.stem.removeprefix("cmd_") for path in (ROOT / "lab" / "cli").glob("cmd_*.py")}
    assert modules == set(VERBS)


def test_help_lists_every_verb_and_the_exit_codes(capsys: pytest.CaptureFixture[str]):
    code, out, _ = call(capsys, "--help")
    assert code == 0
    for verb in list_all_verbs():
        assert f"  {verb} " in out
    assert golden(1) in out


def test_no_word_at_all_shows_the_help(capsys: pytest.CaptureFixture[str]):
    assert call(capsys)[:2] == (0, call(capsys, "--help")[1])


def test_an_option_without_a_verb_is_refused(capsys: pytest.CaptureFixture[str]):
    code, out, err = call(capsys, "--versoin")
    assert (code, out) == (2, "")
    assert golden(1) in err


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]):
    from lab import __version__

    assert call(capsys, "--version")[1] == f"lab {__version__}\n"


@pytest.mark.parametrize(
    ("wrong", "right"), [("rn", "run"), ("stauts", "status"), ("dwon", "down"), ("doktor", "doctor")]
)
def test_a_verb_that_is_nearly_right_is_suggested(capsys: pytest.CaptureFixture[str], wrong: str, right: str):
    code, out, err = call(capsys, wrong)
    assert (code, out) == (2, "")
    assert golden(1, f"{wrong!r}") in err
    assert golden(2, right) in err


def test_a_verb_like_no_other_points_to_the_help(capsys: pytest.CaptureFixture[str]):
    assert "see `lab --help`" in call(capsys, "xyzzy")[2]


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (["up", "--nodez", "3"], "--nodes"),
        (["run", "x.py", "--nproc-per-nod=3x"], "--nproc-per-node"),
        (["status", "--jsn"], "--json"),
        (["logs", "--folow"], "--follow"),
    ],
)
def test_an_option_that_is_nearly_right_is_suggested(capsys: pytest.CaptureFixture[str], words: list[str], right: str):
    code, _, err = call(capsys, *words)
    assert code == 2
    assert right in err


@pytest.mark.features
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["up", "--nodes", "0"], "found '0'; allowed: a whole number, 1 or more"),
        (["up", "--nodes", "two"], "found 'two'"),
        (["up", "--cpus", "-1"], "allowed: a number above 0"),
        (["up", "--cpus", "nan"], "allowed: a number above 0"),
        (["up", "--memory", "1 apple"], "--memory"),
        (["up", "--volume", "nocolon"], "allowed: HOST:NODE"),
        (["up", "--volume", "/nowhere/at/all:/x"], "'/nowhere/at/all' does not exist on this host"),
        (["up", "--env", "novalue"], "allowed: NAME=VALUE"),
        (["up", "--env", "1=2"], "found the name '1'"),
        (["run", "x.py", "--env", "RANK=1"], "found RANK, which the lab sets itself"),
        (["up", "--engine", "podman"], "invalid choice: 'podman'"),
        (["up", "--name", "Upper Case", "--engine", "local"], "is not a valid cluster name"),
        (["run"], "required"),
        (["run", "nowhere.yaml"], "nowhere.yaml"),
        (["run", "nowhere.py"], "nowhere.py"),
        (["run", "x.py", "--timeout", "soon"], "--timeout"),
        (["run", "x.py", "--timeout", "800h"], "--timeout"),
        (["exec", "node0"], "there is no command to run"),
        (["status", "--", "x"], "accepts no arguments after --"),
        (["scenarios", "nowhere"], "there is no folder nowhere"),
        (["image"], "required"),
        (["completion", "nosuchshell"], "nosuchshell"),
        (["--nosuch"], "unrecognized"),
    ],
)
def test_bad_usage_is_a_sentence_and_exit_code_2(capsys: pytest.CaptureFixture[str], words: list[str], sentence: str):
    code, out, err = call(capsys, *words)
    assert (code, out) == (2, "")
    assert sentence in err
    assert "Traceback" not in err


def parser_of(verb: str) -> subject.Parser:
    parser = subject.Parser(prog=f"lab {verb}")
    subject.load_verb(verb).add_arguments(parser)
    return parser


def test_what_follows_two_dashes_belongs_to_the_script():
    parser = parser_of("run")
    assert subject.split_rest(["a", "--", "--epochs", "3", "--"], parser) == (["a"], ["--epochs", "3", "--"])
    assert subject.split_rest(["a", "--"], parser) == (["a"], [])
    assert subject.split_rest(["a", "b"], parser) == (["a", "b"], None)


@pytest.mark.parametrize("own", ["node0", "--name c node0", "node0 --name c", "--nam c node0 --engine=local"])
@pytest.mark.parametrize("dashes", ["", "-- "])
@pytest.mark.parametrize("command", ["pip list", "pip install -q --name x -- y", "true"])
def test_a_command_in_a_node_begins_behind_the_node_with_and_without_two_dashes(own: str, dashes: str, command: str):
    found = subject.split_rest(f"{own} {dashes}{command}".split(), parser_of("exec"))
    assert found == (own.split(), command.split())


# -- errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LabError("x"), 1),
        (ClusterError("x"), 1),
        (ClusterUnfit("x"), 2),
        (ClusterBusy("x"), 2),
        (ImageError("x"), 1),
        (ImageUnfit("x"), 2),
        (RecordError("x"), 1),
        (UsageError("x"), 2),
        (ScenarioError("f:1:2: x"), 2),
        (EngineUnavailable("x"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_an_error_is_a_sentence_and_its_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, as_json: bool
):
    module = subject.load_verb("status")

    def fail(arguments: object) -> int:
        raise error

    monkeypatch.setattr(module, "run", fail)
    found, out, err = call(capsys, "status", *(["--json"] if as_json else []))
    assert found == code
    assert "Traceback" not in err
    if as_json and isinstance(error, LabError):
        assert json.loads(out) == {"error": error.message, "hint": "", "exit_code": code}


def test_a_hint_stands_on_a_line_of_its_own(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    def fail(arguments: object) -> int:
        raise ClusterError("it broke", "mend it")

    monkeypatch.setattr(subject.load_verb("status"), "run", fail)
    assert call(capsys, "status")[2] == golden(1)


def test_a_reader_that_has_seen_enough_is_no_error():
    assert "Traceback" not in help_in_a_shell("| head -1").stderr


def test_a_reader_of_the_help_of_a_verb_that_ends_at_once_is_no_error():
    command = f"('{sys.executable}' -m lab.cli.main runs --help; echo $? >&2) | true"
    said = subprocess.run(["/bin/sh", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert said.stderr == "0\n"


def test_a_removed_current_folder_is_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    os.chdir(tmp_path)
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    try:
        assert call(capsys, "validate", "x.yaml") == (2, "", golden(1))
    finally:
        os.chdir(tmp_path)


def test_a_short_option_of_another_program_leads_to_the_long_one(capsys: pytest.CaptureFixture[str]):
    assert golden(1) in call(capsys, "run", "-n", "3", "train.py")[2]


@pytest.mark.features
def test_an_option_of_the_script_is_told_where_to_stand(capsys: pytest.CaptureFixture[str]):
    code, _, err = call(capsys, "run", "train.py", "--epochs", "3")
    assert code == 2
    assert golden(1) in err
    assert golden(1) not in call(capsys, "status", "--epochs", "3")[2]
    assert golden(2) in call(capsys, "run", "train.py", "--rank", "0", "--world_size", "3")[2]
    assert golden(3) in call(capsys, "mutate", "train.py", "--lr", "1", "--nodes", "3")[2]


def help_in_a_shell(rest: str) -> subprocess.CompletedProcess[str]:
    """What came of `lab --help` with something behind it that a shell understands."""
    command = f"'{sys.executable}' -m lab.cli.main --help {rest}"
    return subprocess.run(["/bin/sh", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=30)


# -- what it costs


def imported_by(code: str) -> set[str]:
    """Modules that a fresh interpreter has imported after some code."""
    show = "\nimport sys; print('\\n'.join(sorted(sys.modules)))"
    said = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}{show}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(said.stdout.split())


HEAVY = {
    "docker",
    "yaml",
    "torch",
    "rich",
    "tenacity",
    "simpleeval",
    "shtab",
    "asyncio",
    "requests",
    "numpy",
    "dataclasses",
}


def test_help_imports_nothing_heavy():
    code = "from lab.cli.main import main\nmain(['--help'])\n"
    assert imported_by(code) & {*HEAVY, "argparse", "re", "shutil", "typing"} == set()


SELDOM = {
    "lab.features.grade.keys",
    "lab.features.faults",
    "lab.features.faults.fault",
    "lab.features.faults.companion",
    "lab.features.faults.injection",
    "lab.operations",
    "lab.features.calls.pattern",
    "lab.trace",
    "lab.features.chaos",
}
"""What few runs need: a warm one takes a quarter of a second, and a third of that are imports."""


@pytest.mark.features
def test_a_run_that_needs_nothing_special_imports_nothing_for_it():
    scenario = ROOT / "scenarios" / "scatter.yaml"
    code = (
        "import lab.cli.cmd_run, lab.engine.docker.engine, lab.run.drive, lab.run.outcome, lab.record.result\n"
        "from pathlib import Path\nfrom lab.spec.load import dump_scenario, open_scenario\n"
        f"dump_scenario(open_scenario(Path({str(scenario)!r})))\n"
    )
    assert imported_by(code) & SELDOM == set()


def test_importing_the_package_imports_nothing():
    assert imported_by("import lab") - imported_by("import __future__") == {"lab"}


@pytest.mark.features
def test_the_public_names_are_there_and_are_imported_when_used():
    code = "import lab\nfor name in lab.__all__: getattr(lab, name)\n"
    assert imported_by(code) & {"docker", "torch", "rich", "yaml", "shtab"} == set()


def test_note_is_what_the_agent_of_a_worker_has_imported(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "labnode.node.rank.note", SimpleNamespace(note="the agent's"))
    assert lab.note == "the agent's"


@pytest.mark.parametrize("verb", ["logs", "show", "runs", "trace"])
def test_reading_records_needs_no_engine(verb: str):
    code = f"from lab.cli.main import main\nmain(['{verb}', '--runs', '/nonexistent'])\n"
    assert imported_by(code) & {"docker", "torch", "rich", "yaml", "shtab", "requests"} == set()


def test_a_run_loads_neither_rich_nor_what_it_does_not_need(tmp_path: Path):
    (tmp_path / "s.py").write_text("print()\n")
    code = (
        "from tests.fake_engine import FakeEngine\n"
        "from lab.cluster import Cluster\n"
        f"Cluster(1, name='c', engine=FakeEngine()).run({str(tmp_path / 's.py')!r})\n"
    )
    unused = {"rich", "tenacity", "simpleeval", "shtab", "torch", "numpy", "asyncio", "docker"}
    assert imported_by(code) & {*unused, "lab.node.recorder.install", "ctypes", "hashlib"} == set()


# -- completion


@pytest.mark.features
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_completion_script_is_one_that_the_shell_can_read(capsys: pytest.CaptureFixture[str], shell: str):
    import shutil

    code, out, _ = call(capsys, "completion", shell)
    assert code == 0
    for verb in list_all_verbs():
        assert verb in out
    assert "--nproc-per-node" in out
    reader = shutil.which(shell)
    if reader is None:  # zsh is seldom there; bash always is
        assert out.startswith("#compdef lab")
        return
    said = subprocess.run([reader, "-n"], input=out, text=True, capture_output=True, timeout=30)
    assert said.returncode == 0, said.stderr


def test_what_nobody_foresaw_is_a_sentence_and_the_traceback_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LAB_DEBUG", raising=False)
    monkeypatch.setattr("lab.cli.cmd_runs.list_records", lambda _: 1 / 0)
    assert main(["runs"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(golden(1))
    kept = Path(re.search(r"/\S+lab-error-\S+\.txt", said)[0])  # type: ignore[index]
    assert "ZeroDivisionError" in kept.read_text()
    kept.unlink()


# -- what a stream cannot write


def written(text: str, encoding: str, errors: str = "strict") -> bytes:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding, errors=errors)
    make_printable(stream)
    stream.write(text)
    stream.flush()
    return buffer.getvalue()


def test_signs_that_an_encoding_lacks_do_not_end_a_command():
    assert written("✔ 3 × é", "latin-1") == "? 3 × é".encode("latin-1")
    assert written("✔ \udcff", "utf-8") == "✔ \\udcff".encode()
    assert written("✔", "ascii", "surrogateescape") == b"?", "as in the locale C"


def test_whoever_chose_how_to_write_what_an_encoding_lacks_is_obeyed():
    assert written("✔", "ascii", "xmlcharrefreplace") == b"&#10004;"


@pytest.mark.parametrize(("closed", "code"), [(">&-", 0), ("2>&-", 0), (">&- 2>&-", 0), (">/dev/full", 1)])
def test_output_that_cannot_be_written_is_no_traceback(closed: str, code: int):
    said = help_in_a_shell(closed)
    assert (said.returncode, "Traceback" in said.stderr) == (code, False)
    assert (golden(1) in said.stderr) == (code == 1)


# -- another package of the same name


def test_a_package_that_was_put_over_ours_is_told_in_a_sentence(tmp_path: Path):
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "__init__.py").write_text('__version__ = "8.3"\n')
    (tmp_path / "lab" / "cli").symlink_to(ROOT / "lab" / "cli")
    said = subprocess.run(
        [sys.executable, "-m", "lab.cli.main", "--version"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.startswith(golden(1))
    assert golden(2) in said.stderr


def test_doctor_names_a_distribution_with_a_package_of_our_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lab", "torch-lab", "labs"):
        folder = tmp_path / f"{name.replace('-', '_')}-8.3.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 8.3\n")
        (folder / "RECORD").write_text("labs/__init__.py,,\n" if name == "labs" else "lab/x.py,,\nlab/__init__.py,,\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    (found,) = find_namesakes()
    assert (found.level, found.what) == ("failed", "package")
    assert golden(1) in found.result
    assert golden(2) in found.fix
