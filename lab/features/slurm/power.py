"""Cutting the power of Slurm's nodes, giving it back, and having them stand still."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from lab.engine.archive import empty
from lab.engine.held import ask_holder, await_end, listens, paused_file, stopped_file
from lab.engine.protocol import Announce
from lab.errors import ClusterError
from lab.features.slurm.command import environment, last_word
from lab.features.slurm.create import await_agents, container_name, step
from lab.features.slurm.on_node.beside import NOT_THERE, WILL_NOT
from lab.features.slurm.state import CONTROL, job_of, own_folder, read_description
from lab.plan.cluster import Node
from lab.words import format_duration, plural

_ENDING_S = 15.0
"""Slurm has noticed that a step ended long before."""


def kill(node: Node) -> None:
    """Kill everything below a node's first process, and wait until Slurm has seen that.

    Raises:
        ClusterError: it does not run.
    """
    beside(node, "kill")
    await_end(node, _ENDING_S)
    paused_file(node.handle).unlink(missing_ok=True)


def stop(nodes: Sequence[Node]) -> None:
    """Kill nodes where they run, and mark them as stopped."""
    for node in nodes:
        stopped_file(node.handle).touch()
        if listens(node.handle):
            kill(node)


def start(folder: Path, nodes: Sequence[Node], announce: Announce) -> None:
    """Have the agents of nodes that do not run started again, and wait until they answer.

    Raises:
        ClusterError: one did not start.
    """
    if not nodes:
        return
    announce(f"starting {plural(len(nodes), 'node')} again, importing torch")
    for node in nodes:
        await_end(node, _ENDING_S)
        ask_holder(folder / CONTROL, node)
        stopped_file(node.handle).unlink(missing_ok=True)
    await_agents(folder, nodes, announce)


def pause(node: Node) -> None:
    """Stop every process of a node.

    Raises:
        ClusterError: it does not run, or a process of it does not stop.
    """
    if not listens(node.handle):
        raise ClusterError(f"{node.name} does not run")
    paused_file(node.handle).touch()
    try:
        beside(node, "pause")
    except ClusterError:
        resume(node)
        raise


def resume(node: Node) -> None:
    """Let every process of a node go on."""
    if paused_file(node.handle).exists():
        with suppress(ClusterError):  # it does not run any more
            beside(node, "resume")
        paused_file(node.handle).unlink(missing_ok=True)


_DEADLINE_S = 60.0
_FILES_DEADLINE_S = 900.0
_CANNOT_RUN = (126, 127)
_BESIDE = "import sys; sys.path.append({site!r}); from labnode.features.slurm.on_node.beside import main; main()"
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


def _run(node: Node, words: Sequence[str], deadline_s: float = _DEADLINE_S) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            argv_of(node, *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=deadline_s,
            env=environment(),
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
    problem = _piped(node, ["sh", "-c", _READ, "lab", path.rstrip("/")], None, archive)
    if problem:
        raise ClusterError(f"cannot read {path} on {node.name}: {problem}")
    archive.seek(0)
    return archive


def write_files(node: Node, folder: str, archive: IO[bytes]) -> None:
    """Unpack a tar into a folder of a node.

    Raises:
        ClusterError: it is not there, or cannot be written.
    """
    archive.fileno()
    archive.seek(0)
    problem = _piped(node, ["sh", "-c", _WRITE, "lab", folder], archive, None)
    if problem:
        raise ClusterError(f"cannot write {folder} on {node.name}: {problem}")


def _piped(node: Node, words: Sequence[str], given: IO[bytes] | None, taken: IO[bytes] | None) -> str:
    """Run a command with files as its streams; returns what is wrong, empty where nothing is."""
    try:
        done = subprocess.run(
            argv_of(node, *words),
            stdin=given or subprocess.DEVNULL,
            stdout=taken or subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_FILES_DEADLINE_S,
            env={**environment(), "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it took longer than {format_duration(_FILES_DEADLINE_S)}"
    if done.returncode == 0:
        return ""
    said = done.stderr.decode("utf-8", "replace")
    if _NO_SUCH in said or "can't cd to" in said:
        return _NO_SUCH
    return last_word(said) or f"exit code {done.returncode}"
