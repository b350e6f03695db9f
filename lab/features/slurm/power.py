"""Commands, programs and files on the machines of Slurm's nodes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from lab.engine.archive import empty
from lab.errors import ClusterError
from lab.features.slurm.command import environment, last_word
from lab.features.slurm.create import container_name, step
from lab.features.slurm.state import job_of, own_folder, read_description
from lab.node.beside import NOT_THERE, WILL_NOT
from lab.plan.cluster import Node
from lab.words import format_duration

_DEADLINE_S = 60.0
_FILES_DEADLINE_S = 900.0
_CANNOT_RUN = (126, 127)
_BESIDE = "import sys; sys.path.append({site!r}); from labnode.node.beside import main; main()"
_PYTHON = 'exec "$(cat "$0/python")" "$@"'
"""The Python that the node's agent runs in; the first word is the node's folder."""
_READ = 'cd "$(dirname "$1")" && ls -d "$(basename "$1")" >/dev/null && exec tar -cf - "$(basename "$1")"'
_WRITE = 'cd "$1" && exec tar -xf -'
_NO_SUCH = "No such file or directory"


def argv_of(node: Node, *words: str, options: Sequence[str] = ("-QQ",)) -> list[str]:
    """What runs a command on the machine of a node; quiet, or srun would say itself that the command failed.

    Raises:
        ClusterError: its cluster was removed.
    """
    job, folder = job_of(node), Path(node.handle).parent
    if not job:
        raise ClusterError(f"{node.name} was removed", "see `lab status`")
    shape = json.loads((read_description(folder) or {}).get("shape", "{}"))
    inside = [f"--container-name={container_name(folder.name, node.name)}"] if shape.get("image") else []
    return [*step(job, node.host, *options, *inside), *words]


def folder_of(node: Node) -> str:
    """The folder of a node on its machine."""
    folder = Path(node.handle).parent
    return own_folder(folder.parent, folder.name, node.name)


def beside(node: Node, what: str) -> str:
    """Do something to all processes of a node; returns what that says.

    Raises:
        ClusterError: it does not run, or that cannot be done.
    """
    root = folder_of(node)
    words = ["sh", "-c", _PYTHON, root, "-c", _BESIDE.format(site=f"{root}/site"), what, f"{root}/first"]
    done = _run(node, words)
    if done.returncode == WILL_NOT:
        raise ClusterError(f"some processes of {node.name} would not stop")
    if done.returncode == NOT_THERE or (not done.stdout and done.returncode):
        raise ClusterError(f"{node.name} does not run", last_word(done.stderr.decode("utf-8", "replace")))
    return done.stdout.decode("utf-8", "replace")


def ask_python(node: Node, program: str, *arguments: str) -> str:
    """What a program says that the Python of a node runs."""
    said = _run(node, ["sh", "-c", _PYTHON, folder_of(node), "-c", program, *arguments])
    return said.stdout.decode("utf-8", "replace")


def _run(
    node: Node,
    words: Sequence[str],
    deadline_s: float = _DEADLINE_S,
    stdin: IO[bytes] | None = None,
    stdout: IO[bytes] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            argv_of(node, *words),
            stdin=stdin or subprocess.DEVNULL,
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=deadline_s,
            env={**environment(), **({"LC_ALL": "C"} if stdin or stdout else {})},  # what tar says is read
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"{node.name} did not answer within {format_duration(deadline_s)}", "see `squeue --me`"
        ) from None


def execute(node: Node, argv: Sequence[str], variables: Mapping[str, str], *, tty: bool) -> int:
    """Run a command with this process's standard streams; returns its exit code.

    Raises:
        ClusterError: there is no such command.
    """
    options = ("-QQ", "--unbuffered", *(("--pty",) if tty else ()))
    words = ("sh", "-c", 'cd "$0"; exec "$@"', folder_of(node), *argv)
    command = argv_of(node, *words, options=options)
    code = subprocess.run(command, env={**environment(), **variables}, check=False).returncode
    if code in _CANNOT_RUN:
        raise ClusterError(f"{node.name} cannot run {argv[0]!r} (exit code {code})")
    return code


def read_files(node: Node, path: str) -> IO[bytes]:
    """A file or folder of a node as a tar whose entries begin with its name.

    Raises:
        ClusterError: there is none, or it cannot be read.
    """
    archive = empty()
    archive.fileno()  # a file of its own, which srun writes
    _pipe(node, f"read {path} on", ["sh", "-c", _READ, "lab", path.rstrip("/")], stdout=archive)
    archive.seek(0)
    return archive


def write_files(node: Node, folder: str, archive: IO[bytes]) -> None:
    """Unpack a tar into a folder of a node.

    Raises:
        ClusterError: it is not there, or cannot be written.
    """
    archive.fileno()
    archive.seek(0)
    _pipe(node, f"write {folder} on", ["sh", "-c", _WRITE, "lab", folder], stdin=archive)


def _pipe(
    node: Node, action: str, words: Sequence[str], stdin: IO[bytes] | None = None, stdout: IO[bytes] | None = None
) -> None:
    """Run a command on the machine of a node with files as its streams.

    Raises:
        ClusterError: it fails, or takes too long.
    """
    done = _run(node, words, _FILES_DEADLINE_S, stdin, stdout)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace")
        absent = _NO_SUCH in said or "can't cd to" in said
        problem = _NO_SUCH if absent else last_word(said) or f"exit code {done.returncode}"
        raise ClusterError(f"cannot {action} {node.name}: {problem}")
