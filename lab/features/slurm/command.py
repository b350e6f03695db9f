"""Slurm's own commands: how they are called, what it means when one fails, and waiting for an allocation."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence

from lab.engine.protocol import Announce
from lab.errors import ClusterError, EngineAbsent, EngineUnavailable
from lab.node import processes
from lab.words import format_duration

COMMANDS = ("salloc", "srun", "squeue", "scontrol", "scancel", "sinfo")
_DEADLINE_S = 20.0
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT")
"""Variables that say which Slurm is meant; the others are of an allocation that whoever calls may be in."""
_UNKNOWN_JOB = "invalid job id"


def refuse_absence() -> None:
    """Refuse to go on where Slurm's commands are not.

    Raises:
        EngineAbsent: one is not on PATH.
    """
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if missing:
        raise EngineAbsent(
            f"the slurm engine needs Slurm's commands, and {missing[0]} is not on PATH",
            "run it on a login node of a Slurm cluster, perhaps after `module load slurm`",
        )


def environment() -> dict[str, str]:
    """Ours, without what an allocation has left there in which this process may run itself."""
    return {name: text for name, text in os.environ.items() if not name.startswith("SLURM_") or name in _KEPT}


def ask(*argv: str, deadline_s: float = _DEADLINE_S) -> str:
    """What a command of Slurm's prints; nothing, where it is about a job that Slurm does not know any more.

    Raises:
        EngineUnavailable: it fails otherwise, or does not answer.
    """
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=deadline_s,
            env={**environment(), "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise EngineUnavailable(
            f"Slurm did not answer {argv[0]} within {format_duration(deadline_s)}", "see `scontrol ping`"
        ) from None
    except OSError as error:
        raise EngineUnavailable(f"{argv[0]} cannot be started: {error.strerror}") from None
    if done.returncode == 0:
        return done.stdout
    if _UNKNOWN_JOB in done.stderr.lower():
        return ""
    raise EngineUnavailable(f"Slurm does not answer: {last_word(done.stderr) or argv[0]}", "see `scontrol ping`")


def last_word(said: str) -> str:
    """The last line that a command of Slurm's said, without what all of them begin with."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("Try ")]
    errors = [line for line in lines if "error: " in line] or lines
    return errors[-1].rpartition("error: ")[2] if errors else ""


def give_back(*jobs: str) -> None:
    """Have Slurm end jobs; those that have ended already are none of its business.

    Raises:
        EngineUnavailable: it does not answer.
    """
    if jobs:
        ask("scancel", "--quiet", *jobs)


_FIRST_S, _TELL_S = 2.0, 10.0
"""When it is first told what is waited for, and then how often."""
_SPARE_S = 30.0
"""Salloc keeps its own deadline; this is for one that does not."""
_LEAVE_S = 5.0
_NUMBER = re.compile(r"job (?:allocation )?(\d+)")
_GRANTED = re.compile(r"Granted job allocation (\d+)")


def allocate(argv: Sequence[str], deadline_s: float, announce: Announce) -> str:
    """Ask for an allocation and wait until there is one; returns the number of its job.

    Raises:
        ClusterError: Slurm gives none, or not in time.
    """
    asking = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**environment(), "LC_ALL": "C"},
        start_new_session=True,  # a Ctrl-C is for the lab, which has it leave the queue
        preexec_fn=lambda: processes.be_told_when_parent_dies(signal.SIGTERM),  # noqa: PLW1509  # there is one thread
    )
    try:
        said = _listen(asking, deadline_s, announce)
    except BaseException:
        asking.terminate()  # it takes its job out of the queue
        raise
    finally:
        _await_end(asking)
    granted = _GRANTED.search(said)
    if granted is None or asking.returncode:
        raise ClusterError(
            f"Slurm gave no allocation: {last_word(said) or f'salloc ended with exit code {asking.returncode}'}",
            "`sinfo` shows what there is; --allocation partition=..., time=... or immediate=SECONDS asks otherwise",
        )
    return granted[1]


def _listen(asking: subprocess.Popen[bytes], deadline_s: float, announce: Announce) -> str:
    """What salloc says until it ends."""
    assert asking.stderr is not None
    said, began, told = b"", time.monotonic(), _FIRST_S - _TELL_S
    while True:
        waited = time.monotonic() - began
        if waited > deadline_s + _SPARE_S:
            raise ClusterError(
                f"Slurm gave no allocation within {format_duration(deadline_s)}", "--allocation immediate=SECONDS"
            )
        if select.select([asking.stderr], [], [], min(1.0, _TELL_S))[0]:
            data = asking.stderr.read1(65536)  # type: ignore[attr-defined]
            if not data:
                return said.decode("utf-8", "replace")
            said += data
        if waited - told >= _TELL_S:
            told = waited
            announce(f"waiting in Slurm's queue for {format_duration(round(waited))}{_why(said)}")


def _why(said: bytes) -> str:
    """What Slurm says that a job waits for."""
    number = _NUMBER.search(said.decode("utf-8", "replace"))
    if number is None:
        return ""
    try:
        state, _, reason = ask("squeue", "--noheader", f"--jobs={number[1]}", "--format=%T %r").strip().partition(" ")
    except EngineUnavailable:
        return ""
    return f" (job {number[1]}, {state}: {reason})" if state else ""


def _await_end(asking: subprocess.Popen[bytes]) -> None:
    try:
        asking.wait(timeout=_LEAVE_S)
    except subprocess.TimeoutExpired:
        asking.kill()
        asking.wait(timeout=_LEAVE_S)
