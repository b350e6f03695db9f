"""Files of a run on its page: what is shown, what is only named, and that nothing of them acts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lab.features.html.contents import MOST_FILES, ShownFile, collect_shown_files
from lab.features.html.page import write_report
from lab.record.layout import OUTPUTS, RESULT
from lab.record.read import Record
from tests.browser.runs import PIXEL, with_files
from tests.golden import golden

pytestmark = pytest.mark.unit
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def shown(record: Record) -> dict[str, ShownFile]:
    return {file.path: file for file in collect_shown_files(record.result())}


def test_pictures_are_shown_texts_begin_and_others_are_named(tmp_path: Path) -> None:
    made = {
        "a.png": PIXEL,
        "b.svg": SVG,
        "rank0/c.csv": b"x,y\n1,2\n",
        "d.pt": b"PK\3\4\0\0",
        "e.txt": b"line\n" * 5000,
    }
    found = shown(with_files(tmp_path / "run", made))
    assert found["a.png"].picture.startswith("data:image/png;base64,")
    assert found["b.svg"].picture.startswith("data:image/svg+xml;base64,")
    assert (found["rank0/c.csv"].text, found["rank0/c.csv"].ranks) == ("x,y\n1,2", "rank 0")
    assert (found["d.pt"].picture, found["d.pt"].text, found["d.pt"].size) == ("", None, "6 B")
    assert (found["e.txt"].text.count("\n"), found["e.txt"].note) == (399, golden(1))


def test_nothing_of_a_file_becomes_markup(tmp_path: Path) -> None:
    attack = "<img src=x onerror=alert(1)>"
    record = with_files(tmp_path / "run", {f"{attack}.html": attack.encode(), "b.svg": SVG, f"\x1b[2J{attack}": b"\0"})
    html = write_report(record).path.read_text()
    assert attack not in html
    assert "<script>alert" not in html
    assert html.count("<img") == 1
    assert "\x1b" not in html


@pytest.mark.parametrize(
    "path", ["../secret.txt", "/etc/passwd", "a/../../secret.txt", "link.txt", "way/secret.txt", "pipe"]
)
def test_a_record_of_a_stranger_shows_no_file_from_elsewhere(tmp_path: Path, path: str) -> None:
    record = with_files(tmp_path / "run", {"plain.txt": b"plain"})
    (record.path / "secret.txt").write_text("secret")
    folder = record.path / OUTPUTS
    (folder / "link.txt").symlink_to(record.path / "secret.txt")
    (folder / "way").symlink_to(record.path)
    os.mkfifo(folder / "pipe")
    data = json.loads((record.path / RESULT).read_text())
    data["outputs"].append({"path": path, "ranks": [0], "bytes": 6})
    data["outputs_folder"] = "/"
    (record.path / RESULT).write_text(json.dumps(data))
    plain, other = collect_shown_files(record.result())
    assert plain.text == "plain"
    assert (other.text, other.picture) == (None, "")
    assert other.note.startswith("not shown: ")


def test_what_was_put_elsewhere_is_only_named(tmp_path: Path) -> None:
    record = with_files(tmp_path / "run", {"plain.txt": b"plain"})
    (record.path / OUTPUTS).rename(tmp_path / "elsewhere")
    data = json.loads((record.path / RESULT).read_text())
    (record.path / RESULT).write_text(json.dumps({**data, "outputs_folder": str(tmp_path / "elsewhere")}))
    [file] = collect_shown_files(record.result())
    assert (file.text, file.note) == (None, golden(1))


def test_a_page_embeds_so_much_and_no_more(tmp_path: Path) -> None:
    large = PIXEL + b"\0" * 1_900_000
    huge = PIXEL[:16] + (60_000).to_bytes(4, "big") * 2 + PIXEL[24:]
    record = with_files(
        tmp_path / "run", {**{f"{i}.png": large for i in range(5)}, "huge.png": huge, "big.svg": SVG + b" " * 600_000}
    )
    found = shown(record)
    assert [bool(found[f"{i}.png"].picture) for i in range(5)] == [True, True, True, False, False]
    assert found["4.png"].note == golden(1)
    assert found["huge.png"].note == golden(2)
    assert found["big.svg"].note == golden(3)
    assert write_report(record).bytes < 9_000_000


def test_of_very_many_files_the_first_are_named(tmp_path: Path) -> None:
    record = with_files(tmp_path / "run", {f"{i}.bin": b"\0" for i in range(MOST_FILES + 3)})
    report = write_report(record)
    assert golden(1) in report.left_out
