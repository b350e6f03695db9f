"""Leaves `answer.json` for the check of its scenario, as something that the check may not bear. Argument: as what.

With `every text`, it leaves all texts, each in a file that has its name.
"""

import contextlib
import json
import os
import socket
import sys

NAME = "answer.json"
RIGHT = json.dumps({"sum": 42})
TEXTS = {
    "nested": '{"sum": ' + "[" * 1_000_000,
    "nested mappings": '{"sum": ' * 200_000,
    "nested after a string": '{"\\"[[[\\\\": 1, "sum": ' + "[" * 500 + "]" * 500 + "}",
    "number of a million digits": '{"sum": ' + "4" * 1_000_000 + "}",
    "number beyond every float": '{"sum": 1e999}',
    "no number": '{"sum": NaN}',
    "million values": '{"sum": 42, "more": [' + "0," * 2_000_000 + "0]}",
    "million lists": '{"sum": 42, "more": [' + "[]," * 2_000_000 + "[]]}",
    "half a character": '{"sum": 42, "more": "\\ud800"}',
    "no JSON": "forty-two",
    "nothing": "",
    "escapes": '{"sum": "\x1b[2J\x9b2J\u202e"}',
    "quotes": '"' * 14_000_000,
    "escaped quotes": '"' + '\\"' * 7_000_000,
    "backslashes": '"' + "\\" * 14_000_000,
    "right": RIGHT,
    "right, twice": '{"sum": 41, "sum": 42}',
    "right, with a mark": "\ufeff" + RIGHT,
}


def make(how: str) -> None:
    if how in TEXTS:
        with open(NAME, "w", encoding="utf-8") as file:
            file.write(TEXTS[how])
    elif how == "every text":
        for name, text in TEXTS.items():
            with open(f"{name}.json", "w", encoding="utf-8") as file:
                file.write(text)
    elif how == "pipe":
        os.mkfifo(NAME)
    elif how == "socket":
        socket.socket(socket.AF_UNIX).bind(NAME)
    elif how == "folder":
        os.mkdir(NAME)
    elif how == "link to a device":
        os.symlink("/dev/zero", NAME)
    elif how == "link to a file of the check":
        os.symlink("/proc/self/cwd/expected.json", NAME)
    elif how == "link in a folder":
        open("right.json", "w").write(RIGHT)
        os.symlink("right.json", NAME)
    elif how == "terabyte":
        open(NAME, "w").write(RIGHT)
        os.truncate(NAME, 1 << 40)
    elif how == "too large":
        open(NAME, "w").write(RIGHT + " " * (40 << 20))
    elif how == "large":
        open(NAME, "w").write(RIGHT + " " * (20 << 20))
    elif how == "no text":
        open(NAME, "wb").write(b'{"sum": "\xff"}')
    elif how == "name in capitals":
        open(NAME.upper(), "w").write(RIGHT)
    elif how == "right, for nobody to read":
        open(NAME, "w").write(RIGHT)
        os.chmod(NAME, 0)
    elif how == "right, far down":
        open(NAME, "w").write(RIGHT)
        for _ in range(3000):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
        open(NAME, "w").write(RIGHT)
    elif how == "right, among thousands":
        open(NAME, "w").write(RIGHT)
        os.mkdir("many")
        for number in range(10_000):
            os.close(os.open(f"many/{number}", os.O_CREAT))
    elif how == "right, among odd names":
        open(NAME, "w").write(RIGHT)
        for name in (b"\xff\xfe", b"a\nb", b"\x1b[2J", "\u202etxt".encode(), b"x" * 255, b" ", b"-rf"):
            os.mkfifo(name)
            with contextlib.suppress(OSError):
                open(name + b".txt", "wb").write(b"x")
    elif how == "right, beside gigabytes":
        open(NAME, "w").write(RIGHT)
        for number in range(6):
            open(f"large{number}", "w").write("x" * (31 << 20))
    elif how == "right, beside a pipe":
        open(NAME, "w").write(RIGHT)
        os.mkfifo("pipe")
    else:
        raise SystemExit(f"unknown: {how}")


if os.environ["RANK"] == "0":
    make(sys.argv[1])
