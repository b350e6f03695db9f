"""Slurm's own commands: how they are called, and what it means when one fails."""

from __future__ import annotations

import os
import shutil
import subprocess

from lab.errors import EngineAbsent, EngineUnavailable
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
