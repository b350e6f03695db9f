"""Requirements that a stranger names: no file outside of the folder of the scenario is read, and no secret is shown."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from lab.cli.main import main
from tests.golden import golden
from tests.wheel_files import make_wheel

SECRET = "mail:*:19000:0:99999:7:::"
ESCAPES = "tqdm \x1b[31m\x1b]0;title\x07\u202e"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file of this machine that a stranger may not see, and a wheel."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "shadow").write_text(f"root:!:1\n{SECRET}\n")
    make_wheel(folder, "labtestsecret")
    return folder


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """The scenario of a stranger."""
    folder = tmp_path / "stranger"
    folder.mkdir()
    (folder / "main.py").write_text("print('hello')\n")
    return folder / "main.yaml"


def validated(scenario: Path, requirements: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What `lab validate` says of a scenario, within a deadline."""
    scenario.write_text(f"script: main.py\nrequirements: {requirements}\n")
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main(["validate", str(scenario)])), daemon=True)
    thread.start()
    thread.join(20)
    assert codes == [2], "it does not answer"
    said = "".join(capsys.readouterr())
    assert SECRET not in said
    assert "\x1b" not in said
    assert "\x07" not in said
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize(
    "named",
    ["{outside}/shadow", "../outside/shadow", "link.txt", "linked/shadow", "nested.txt", "below/../../outside/shadow"],
)
def test_a_file_outside_of_the_folder_is_refused(
    scenario: Path, outside: Path, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    (scenario.parent / "link.txt").symlink_to(outside / "shadow")
    (scenario.parent / "linked").symlink_to(outside)
    (scenario.parent / "below").mkdir()
    (scenario.parent / "nested.txt").write_text(f"-r {outside}/shadow\n")
    said = validated(scenario, named.format(outside=outside), capsys)
    assert golden(1) in said


@pytest.mark.parametrize("named", ["{outside}/{wheel}", "labtestsecret @ file://{outside}/{wheel}", "linked/{wheel}"])
def test_a_wheel_outside_of_the_folder_is_refused(
    scenario: Path, outside: Path, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    (wheel,) = outside.glob("*.whl")
    (scenario.parent / "linked").symlink_to(outside)
    text = named.format(outside=outside, wheel=wheel.name)
    assert golden(1) in validated(scenario, f"['{text}']", capsys)
    script = scenario.parent / "main.py"
    script.write_text(f"# /// script\n# dependencies = ['{text}']\n# ///\n")
    assert main(["run", "--dry-run", "--engine", "local", str(script)]) == 2
    assert golden(1) in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "binary", "escapes", "itself", "chain", "name"])
def test_a_file_that_is_none_is_refused_with_a_sentence(
    scenario: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    path = scenario.parent / "requirements.txt"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe\x00\x01")
    elif kind == "escapes":
        path.write_text(ESCAPES)
    elif kind == "itself":
        path.write_text("-r requirements.txt\n!")
    elif kind == "chain":
        for number in range(500):
            (scenario.parent / f"r{number}.txt").write_text(f"-r r{number + 1}.txt\n")
        path.write_text("-r r0.txt\n")
    elif kind == "name":
        path.write_text(f"-r {ESCAPES}\n")
    assert "requirements" in validated(scenario, "requirements.txt", capsys)


def test_a_file_that_you_name_yourself_shows_no_line_of_others(
    scenario: Path, outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = scenario.parent / "mine.txt"
    for text in (f"-r {outside}/shadow\n", None):
        mine.unlink(missing_ok=True)
        mine.write_text(text) if text else mine.symlink_to(outside / "shadow")
        assert main(["run", "--dry-run", "--requirements", str(mine), str(scenario.parent / "main.py")]) == 2
        said = "".join(capsys.readouterr())
        assert SECRET not in said
        assert "root" not in said.replace(str(outside.parent), "")
        assert golden(1) in said
