"""Checks of `lab doctor` for Slurm: its version, its machines, munge, and the Python of nodes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from lab.engine.doctor import Check, Wanted
from lab.errors import EngineUnavailable
from lab.features.slurm.command import is_idle, last_error_line, query_slurm, run_command
from lab.features.slurm.create import shared_folder
from lab.grouping import group_pairs
from lab.words import format_count, join_words

_TRY_S = 30
_CLOCK_OFF_S = 0.5
_NOT_FREE = "no machine was free for a test"
_PROGRAM = (
    "import importlib.util as u, sys, time; print(time.time(), sys.executable) if u.find_spec('torch') else sys.exit(3)"
)
_TRY = 'for python do command -v "$python" >/dev/null && "$python" -c "$0" && exit; done; exit 3'


def examine_slurm(home: Path, wanted: Wanted, pythons: Sequence[str]) -> list[Check]:
    """Check whether Slurm grants machines, and whether they can be nodes."""
    try:
        version = query_slurm("sinfo", "--version").strip()
        return [Check("ok", "engine", version), *_machines(wanted), *_munge(), *_a_node(pythons), _shared(home)]
    except EngineUnavailable as error:
        return [Check("failed", "engine", error.message, error.hint)]


def _machines(wanted: Wanted) -> list[Check]:
    lines = query_slurm("sinfo", "--noheader", "--Node", "--format=%P %T").splitlines()
    checks = []
    for partition, states in group_pairs(line.partition(" ")[::2] for line in lines).items():
        idle = sum(map(is_idle, states))
        default = partition.endswith("*")
        name = f"{partition.rstrip('*')}{' (the default)' if default else ''}"
        summary = f"{name}: {format_count(len(states), 'machine')}, {idle} idle"
        fix = f"--allocation partition=NAME, or fewer than {wanted.nodes} nodes"
        checks.append(Check.judge("partition", summary, default and len(states) < wanted.nodes, fix))
    return checks or [Check("failed", "partition", "Slurm has no partition for you", "ask the cluster's administrator")]


def _munge() -> list[Check]:
    if shutil.which("munge") is None:
        return []
    done = run_command("munge", "--no-input")
    result = (last_error_line(done.stderr) or "it does not answer") if done.returncode else "it answers"
    return [Check.judge("munge", result, done.returncode, "ask the cluster's administrator", "failed")]


def _a_node(pythons: Sequence[str]) -> list[Check]:
    """Run one process on an idle machine, to check its Python for torch and its clock."""
    began = time.time()
    options = "-QQ --nodes=1 --ntasks=1 --immediate=5 --time=1 --job-name=lab-doctor --mpi=none"
    try:
        done = run_command("srun", *options.split(), "sh", "-c", _TRY, _PROGRAM, *pythons, deadline_s=_TRY_S)
    except EngineUnavailable:
        return [Check("warning", "node", _NOT_FREE, "try again later")]
    ended = time.time()
    when, _, python = done.stdout.strip().partition(" ")
    if not python:
        if done.returncode == 3:
            fix = "set LAB_SLURM_PYTHON to a Python with torch that all machines have, or activate one"
            return [Check("failed", "node", f"none of {join_words(pythons)} has torch there", fix)]
        return [Check("warning", "node", last_error_line(done.stderr) or _NOT_FREE, "try again later")]
    off_s = max(began - float(when), float(when) - ended, 0.0)
    is_off = off_s > _CLOCK_OFF_S
    away = f"{off_s:.1f} s" if is_off else f"less than {ended - began:.1f} s"
    clock = Check.judge("clock", f"the clock of a node differs by {away}", is_off, "ask for NTP on all machines")
    return [Check("ok", "node", f"has torch, in {python}"), clock]


def _shared(home: Path) -> Check:
    folder = shared_folder(home, "x").parent
    return Check("ok", "shared folder", f"{folder}; all nodes have to see it; set another one with LAB_SLURM_SHARED")
