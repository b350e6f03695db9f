"""Checks of `leaves_for_check.py`: one that reads safely, and others that do not."""

import json
import os
import sys

from lab import OutputError, read_output

WORK = os.environ.get("LAB_WORK_FOLDER", "")


def safely(results, path="answer.json"):
    answer = read_output(path)
    assert isinstance(answer, dict), f"{path} holds no mapping"
    assert answer["sum"] == 42, f"the sum is {answer['sum']!r}"


def each_safely(results):
    for path in sorted(name for name in os.listdir(WORK) if name.endswith(".json")):
        try:
            safely(results, path)
            print(json.dumps([path, "it passed"]))
        except OutputError as error:
            print(json.dumps([path, str(error)]))


def as_bytes(results):
    assert len(read_output("answer.json", kind="bytes")) == 11


def of_a_path(results):
    assert json.loads(read_output(os.path.join(WORK, "answer.json"), kind="text"))["sum"] == 42
    for path in ("../left_out.json", "/etc/passwd", os.path.join(WORK, "../results.json"), "answer.json/..", "", "\0"):
        try:
            read_output(path)
        except OutputError:
            continue
        raise AssertionError(f"{path!r} was read")


def naively(results):
    with open(os.path.join(WORK, "answer.json")) as file:
        assert json.load(file)["sum"] == 42


def everything(results):
    count = 0
    for top, _, names in os.walk(WORK):
        for name in names:
            with open(os.path.join(top, name), "rb") as file:
                count += len(file.read())
    assert count >= 11


def changes(results):
    for action in (lambda: open(os.path.join(WORK, "new"), "w"), lambda: os.unlink(os.path.join(WORK, "answer.json"))):
        try:
            action()
        except OSError:
            continue
        raise AssertionError("it can be changed")


def takes_all_memory(results):
    held = [b"x" * (1 << 24) for _ in range(1000)]
    assert held


def has_too_little_memory(results):
    raise MemoryError


def starts_processes_without_end(results):
    import subprocess

    while True:
        subprocess.Popen(["sleep", "60"])


def crashes(results):
    import ctypes

    ctypes.string_at(0)


def leaves(results):
    sys.exit(3)
