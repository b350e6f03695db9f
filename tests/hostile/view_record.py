"""Call every verb that reads records, in a process with little memory, and print what each of them answers.

`python -m tests.hostile.view_record` runs in a folder with records in `.lab/runs`. It prints one line of JSON for each
call: the words, the exit code, the seconds of computing, and the files that hold standard output and standard error.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

from lab.cli.main import main, make_printable

MEMORY_BYTES = 1500 << 20
VIEWS: list[list[str]] = [
    ["runs"],
    ["runs", "--json"],
    ["show", "r"],
    ["show", "r", "--json"],
    ["show", "r", "--steps"],
    ["show", "r", "--calls"],
    ["show", "r", "--step", "1"],
    ["show", "r", "--model"],
    ["logs", "r"],
    ["logs", "r", "--json"],
    ["logs", "r", "--rank", "0"],
    ["logs", "r", "--rank", "-1"],
    ["logs", "r", "--launcher"],
    ["logs", "r", "--attempt", "0"],
    ["explain", "r"],
    ["explain", "r", "--json"],
    ["explain", "r", "--attempt", "0"],
    ["trace", "r"],
    ["trace", "r", "--json"],
    ["trace", "r", "--chrome"],
    ["trace", "r", "--flight-recorder"],
    ["diff", "good", "r"],
    ["diff", "r", "good", "--json"],
    ["report", "r"],
    ["report", "r", "-o", "written.html"],
    ["report", "--diff", "good", "r"],
    ["report", "--suite", "r"],
    ["watch", "r"],
    ["watch", "r", "--json"],
    ["runs", "--prune", "--keep", "0", "--dry-run"],
]


def call_verb(words: list[str], out: Path) -> dict[str, object]:
    """Run one verb with its output in two files."""
    saved = os.dup(1), os.dup(2)
    began = time.process_time()
    for fd, name in ((1, "out"), (2, "err")):
        file = os.open(out.with_suffix(f".{name}"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, fd)
        os.close(file)
    try:
        try:
            code: object = main(words)
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        for fd, old in zip((1, 2), saved, strict=True):
            os.dup2(old, fd)
            os.close(old)
    return {"words": words, "code": code, "seconds": time.process_time() - began, "files": str(out)}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 20, 256 << 20))
    for stream in (sys.stdout, sys.stderr):
        make_printable(stream)
    chosen = json.loads(sys.argv[1]) if len(sys.argv) > 1 else VIEWS
    Path("answers").mkdir(exist_ok=True)
    for number, view in enumerate(chosen):
        print(json.dumps(call_verb(view, Path("answers", f"{number}"))), flush=True)
