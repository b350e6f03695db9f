"""Commands within limits: each is a fork of one process that has imported what such commands import.

A fork saves what every command would import again. The kernel ends it after some seconds of computing, and refuses it
more memory than allowed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_S = 170
"""Seconds until a command is ended that waits."""
NOBODY = ""
"""As the name of a file for the output: a pipe that nobody reads."""


@dataclass
class Answer:
    """What a command printed, and its exit code; a negative one is the signal that ended it."""

    code: int
    output: str
    error: str


@dataclass
class Request:
    """A module to run as a program."""

    module: str
    words: list[str]
    folder: str
    out: str
    err: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Beside what is there already."""
    cpu_s: int = resource.RLIM_INFINITY
    memory_bytes: int = resource.RLIM_INFINITY
    teaches: bool = False
    """Whether what it imports is imported for all that follow."""


class Forks:
    """The process whose forks the commands are."""

    def __init__(self, *, cpu_s: int = resource.RLIM_INFINITY, memory_bytes: int = resource.RLIM_INFINITY) -> None:
        self._limits = {"cpu_s": cpu_s, "memory_bytes": memory_bytes}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.limited"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def learn(self, folder: Path, *commands: Iterable[str]) -> None:
        """Import what these commands of the lab import, which are run in this folder."""
        words = [json.dumps([[*command] for command in commands])]
        code = self.send(Request("tests.hostile.view_record", words, str(folder), os.devnull, os.devnull, teaches=True))
        assert code == 0, code

    def lab(self, folder: Path, *words: str) -> Answer:
        """Run a command of the lab in a folder, in which it also has its temporary files."""
        out, err = folder.parent / f"{folder.name}.out", folder.parent / f"{folder.name}.err"
        about = {"environment": {"TMPDIR": str(folder)}, **self._limits}
        code = self.send(Request("lab.cli.main", [*words], str(folder), str(out), str(err), **about))  # type: ignore[arg-type]
        return Answer(code, out.read_bytes().decode(), err.read_bytes().decode())

    def send(self, request: Request) -> int:
        """Run a program; its exit code, or the negative number of the signal that ended it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asdict(request)), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=MOST_S)


def serve() -> None:
    """Run each request of standard input in a fork, and print its exit code."""
    for line in sys.stdin:
        request = Request(**json.loads(line))
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.close(reader)
                run(request)
                if request.teaches:
                    os.write(writer, "\n".join(sys.modules).encode())
                os._exit(0)
            finally:
                os._exit(70)  # a fork that comes back takes no other request
        os.close(writer)
        with open(reader) as file:
            names = file.read().split() if request.teaches else []
        for name in names:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def run(request: Request) -> None:
    """Become the program."""
    opened = [os.open(os.devnull, os.O_RDONLY), *map(open_for_writing, (request.out, request.err))]
    for fd, file in enumerate(opened):
        os.dup2(file, fd)
        os.close(file)
    os.chdir(request.folder)
    os.environ.update(request.environment)
    sys.argv[1:] = request.words
    signal.alarm(MOST_S)
    resource.setrlimit(resource.RLIMIT_CPU, (request.cpu_s, request.cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (request.memory_bytes, request.memory_bytes))
    sys.modules.pop(request.module, None)  # a program is not imported before it runs
    runpy.run_module(request.module, run_name="__main__")
    sys.stdout.flush()


def open_for_writing(name: str) -> int:
    """The descriptor of a new file, or of a pipe that nobody reads."""
    if name != NOBODY:
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    reader, writer = os.pipe()
    os.close(reader)
    return writer


if __name__ == "__main__":
    serve()
