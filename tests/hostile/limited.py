"""Commands of the lab within limits: each is a fork of one process that has imported the lab, and ends as `lab` does.

A fork saves what every command would import again. The kernel ends it after some seconds of computing, and refuses it
more memory than allowed.
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_S = 170
"""Seconds until a command is ended that waits."""


@dataclass
class Answer:
    """What a command printed, and its exit code; a negative one is the signal that ended it."""

    code: int
    output: str
    error: str


class LimitedLab:
    """Runs commands of the lab, each with at most so many seconds of computing and bytes of memory."""

    def __init__(self, cpu_s: int, memory_bytes: int) -> None:
        command = [sys.executable, "-m", "tests.hostile.limited", str(cpu_s), str(memory_bytes)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True)

    def __call__(self, folder: Path, *words: str) -> Answer:
        """Run a command in a folder, in which it also has its temporary files."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        out, err = folder.parent / f"{folder.name}.out", folder.parent / f"{folder.name}.err"
        print(json.dumps([str(folder), str(out), str(err), *words]), file=self._process.stdin, flush=True)
        code = int(self._process.stdout.readline())
        return Answer(code, out.read_bytes().decode(), err.read_bytes().decode())

    def close(self) -> None:
        """End the process whose forks the commands are."""
        self._process.communicate(timeout=MOST_S)


def serve(cpu_s: int, memory_bytes: int) -> None:
    """Run each command of standard input, and print its exit code."""
    import lab.cli.cmd_explain
    import lab.cli.cmd_show
    import lab.cli.cmd_validate
    import lab.diagnosis.explain
    import lab.features.dumps.record
    import lab.features.html.page
    import lab.features.html.verb  # noqa: F401  # what commands would import

    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if not pid:
            try:
                run(request, cpu_s, memory_bytes)
            finally:
                os._exit(70)  # a fork that comes back takes no other command
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def run(request: list[str], cpu_s: int, memory_bytes: int) -> None:
    """Become the command."""
    folder, out, err, *words = request
    for fd, name, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY), (2, err, os.O_WRONLY)):
        opened = os.open(name, flags | (os.O_CREAT | os.O_TRUNC if fd else 0), 0o600)
        os.dup2(opened, fd)
        os.close(opened)
    os.chdir(folder)
    os.environ["TMPDIR"] = folder
    sys.argv[1:] = words
    signal.alarm(MOST_S)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    runpy.run_module("lab.cli.main", run_name="__main__")


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
