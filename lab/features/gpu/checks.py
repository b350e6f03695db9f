"""What `lab doctor` says of GPUs: what they need on this machine and of the engine, and a self-test on them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from lab.engine.doctor import Check, Wanted, devices_here
from lab.features.gpu import self_test
from lab.words import plural

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


def check_gpus(wanted: Wanted, runtimes: Iterable[str] | None, run_test: Callable[..., list[Check]]) -> list[Check]:
    """What there is to say of GPUs; see `lab.engine.doctor.gpu_checks`."""
    checks = gpu_checks(look_for_gpus(runtimes), wanted.gpus, wanted.nodes) if wanted.gpus else []
    if wanted.gpu_test:
        variables = {self_test.TEXT: Path(self_test.__file__).read_text(encoding="utf-8")}
        checks += run_test(["-c", self_test.START], variables, read_steps)
    return checks


def look_for_gpus(runtimes: Iterable[str] | None) -> GpuFacts:
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


def read_steps(output: str, code: int, errors: str = "") -> list[Check]:
    """The steps of the self-test, a check each; of a test that ended without a word, its last words."""
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
