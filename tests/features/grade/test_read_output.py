"""`lab.read_output`: the value of a file, or one error with a sentence."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import lab
from lab import OutputError, read_output
from tests.golden import golden


@pytest.mark.parametrize(
    "value",
    [{"a": [1, 2.5, None, True, '[[["\\']}, [], 0, "text", 10**399, [[[]]] * 5, {"\\": {'"': "}{"}}],
)  # fmt: skip
def test_json_is_read_as_what_it_stands_for(tmp_path: Path, value: object) -> None:
    (tmp_path / "a.json").write_text(json.dumps(value))
    assert read_output("a.json", folder=str(tmp_path)) == value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 101 + "]" * 101, "is nested more than 100 deep"),
        ("[" * 10**6, "is nested more than 100 deep"),
        ('["\\\\", ' + "[" * 101, "is nested more than 100 deep"),
        ('{"\\"": ' + '{"a":' * 101, "is nested more than 100 deep"),
        ("[" + "0," * 10**6 + "0]", "has more than 1,000,000 values"),
        ("1" * 401, "holds a number of 401 digits"),
        ("-1e999", "has a number that no float can hold"),
        ("[Infinity]", "has Infinity"),
        ("[1] x", "is not JSON: Extra data"),
        ('"\\udfff"', "has an invalid character"),
    ],
    ids=range(10),
)
def test_what_is_too_much_or_no_json_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(OutputError, match=r"^a\.json ") as refused:
        read_output("a.json", folder=str(tmp_path))
    assert told in str(refused.value)


def test_json_as_deep_as_is_allowed_is_read_however_deep_the_caller_is(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" * 100 + "]" * 100)

    def call(depth: int) -> object:
        return call(depth - 1) if depth else read_output("a.json", folder=str(tmp_path))

    assert call(0)
    with pytest.raises((OutputError, RecursionError)):
        call(sys.getrecursionlimit() - 60)


def test_text_and_bytes_are_read_within_the_limit_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("ü\r\n".encode())
    assert read_output("a", kind="text", folder=str(tmp_path)) == "ü\r\n"
    assert read_output("a", kind="bytes", max_bytes=4, folder=str(tmp_path)) == b"\xc3\xbc\r\n"
    with pytest.raises(OutputError, match=golden(1)):
        read_output("a", kind="bytes", max_bytes=3, folder=str(tmp_path))
    with pytest.raises(ValueError, match=golden(2)):
        read_output("a", kind="pickle", folder=str(tmp_path))


def test_no_path_leads_out_and_nothing_is_waited_for(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "secret").write_text("1")
    (work / "link").symlink_to("../secret")
    (work / "up").symlink_to("..")
    os.mkfifo(work / "pipe")
    for path in ("link", "up/secret", "pipe", "../secret", str(tmp_path / "secret"), ".", "", "none", "\0", "x/../.."):
        with pytest.raises(OutputError):
            read_output(path, folder=str(work))


def test_the_folder_is_that_of_the_check_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("1")
    monkeypatch.setenv("LAB_WORK_FOLDER", str(tmp_path))
    assert lab.read_output("a") == 1
    assert lab.read_output(tmp_path / "a") == 1


def test_a_file_that_was_left_out_is_told_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "left_out.json"
    listed.write_text(json.dumps({"a": "it is a pipe", "in": "it is a link"}))
    monkeypatch.setenv("LAB_LEFT_OUT", str(listed))
    for path, why in {"a": "it is a pipe", "in/it": "it is a link"}.items():
        with pytest.raises(OutputError, match=golden(1, path, why)):
            read_output(path, folder=str(tmp_path))
