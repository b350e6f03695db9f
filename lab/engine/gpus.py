"""GPUs: how many this machine has, and what `lab doctor` says of what keeps nodes from them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.engine.doctor import Check
from lab.errors import MachineLacks
from lab.node import gpu_test
from lab.words import plural

_DEVICES = Path("/dev")
_DRIVER = Path("/proc/driver/nvidia/version")
_TOOLS = ("nvidia-ctk", "nvidia-container-cli", "nvidia-container-runtime")
_TOOLKIT_PAGE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """What there is of what GPUs need. None: that is another machine's, which cannot be looked at."""

    driver: str | None = ""
    """Its version; empty: there is none."""
    devices: int | None = 0
    toolkit: bool | None = False
    """Whether the NVIDIA container toolkit is installed."""
    runtime: bool | None = None
    """Whether the engine knows the NVIDIA runtime; None where nodes are no containers."""


def devices_here() -> int | None:
    """How many GPUs this machine has; None where nodes are on another one."""
    if not os.environ.get("DOCKER_HOST", "unix://").startswith("unix://"):
        return None
    return len(list(_DEVICES.glob("nvidia[0-9]*")))


def refusal(wanted: int) -> str:
    """Why so many GPUs a node cannot be had here; empty where they can, or nobody knows."""
    there = devices_here()
    if there is None or wanted <= there:
        return ""
    return f"needs GPU: {plural(wanted, 'GPU')} a node, and this machine has {there or 'none'}"


def refuse_missing(wanted: int) -> None:
    """Refuse what this machine has no GPUs for.

    Raises:
        MachineLacks: it has fewer than a node is to have.
    """
    why = refusal(wanted)
    if why:
        raise MachineLacks(why, f"`lab doctor --gpus {wanted}` says what is missing")


def look(runtimes: Iterable[str] | None) -> GpuFacts:
    """What there is; `runtimes` are those that the engine knows, None where it has none."""
    runtime = None if runtimes is None else "nvidia" in runtimes
    devices = devices_here()
    if devices is None:
        return GpuFacts(driver=None, devices=None, toolkit=None, runtime=runtime)
    try:
        driver = next(iter(_DRIVER.read_text().splitlines()), "")
    except OSError:
        driver = ""
    return GpuFacts(driver=driver, devices=devices, toolkit=any(map(shutil.which, _TOOLS)), runtime=runtime)


def gpu_checks(facts: GpuFacts, wanted: int, nodes: int = 1) -> list[Check]:
    """A line for each thing that GPUs need, in the order in which they are to be mended."""
    found = []
    if facts.driver is not None:
        mend = "install the NVIDIA driver of this machine's system, then look at nvidia-smi"
        found.append(_check("gpu driver", bool(facts.driver), facts.driver or "no NVIDIA driver is loaded", mend))
    if facts.devices is not None:
        what = f"{plural(facts.devices, 'GPU')}, {wanted} for each of {plural(nodes, 'node')}"
        if wanted <= facts.devices < wanted * nodes:
            found.append(Check("warning", "gpus", f"{what}: there is none for some of them", "fewer nodes"))
        else:
            found.append(_check("gpus", facts.devices >= wanted, what, "ask for fewer with --gpus, or add some"))
    if facts.runtime is not None:
        if facts.toolkit is not None:
            missing = "the NVIDIA container toolkit is not installed"
            found.append(_check("gpu toolkit", facts.toolkit, "installed" if facts.toolkit else missing, _TOOLKIT_PAGE))
        missing = "the engine does not know the NVIDIA runtime"
        mend = "sudo nvidia-ctk runtime configure --runtime=docker, then restart the engine"
        found.append(_check("gpu runtime", facts.runtime, "known to the engine" if facts.runtime else missing, mend))
    return found


def _check(what: str, there: bool, found: str, fix: str) -> Check:
    return Check("ok", what, found) if there else Check("failed", what, found, fix)


def self_test_command() -> tuple[list[str], dict[str, str]]:
    """The words after the interpreter, and the variables, of the self-test."""
    return ["-c", gpu_test.START], {gpu_test.TEXT: Path(gpu_test.__file__).read_text(encoding="utf-8")}


def self_test_here(more: Mapping[str, str] | None = None) -> list[Check]:
    """The self-test with this interpreter, which is that of local nodes."""
    words, variables = self_test_command()
    environment = {**os.environ, **variables, **(more or {})}
    try:
        done = subprocess.run(
            [sys.executable, *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=3 * gpu_test.DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [Check("failed", "gpu test", f"no end after {3 * gpu_test.DEADLINE_S} s", "see nvidia-smi and dmesg")]
    return told_steps(done.stdout, done.returncode, done.stderr)


def told_steps(output: str, code: int, errors: str = "") -> list[Check]:
    """What the self-test told, a line a step; one that ended without a word is told by its last words."""
    found = []
    for line in output.splitlines():
        try:
            step = json.loads(line)
            found.append(_check(step["what"], bool(step["worked"]), step["found"], step["mend"]))
        except (ValueError, KeyError, TypeError):  # what torch or nccl print
            continue
    if code and not any(check.level == "failed" for check in found):
        last = next(iter(errors.strip().splitlines()[-1:]), f"exit code {code}")
        found.append(Check("failed", "gpu test", f"it ended early: {last}", "see nvidia-smi and dmesg"))
    return found
