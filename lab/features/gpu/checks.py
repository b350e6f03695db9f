"""Checks of `lab doctor` for GPUs: what they need on this machine and of the engine."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from lab.engine.docker.connection import Connection
from lab.engine.doctor import Check, Wanted, devices_here
from lab.words import format_count

_DRIVER = Path("/proc/driver/nvidia/version")
_TOOLS = ("nvidia-ctk", "nvidia-container-cli", "nvidia-container-runtime")
_TOOLKIT_PAGE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"


def check_gpus(wanted: Wanted, connection: Connection | None) -> list[Check]:
    """Return the checks of GPUs; see `lab.engine.doctor.gpu_checks`."""
    runtimes = connection.ask("GET", "/info").get("Runtimes", {}) if connection is not None else None
    return judge_gpus(wanted, runtimes)


def judge_gpus(wanted: Wanted, runtimes: Collection[str] | None) -> list[Check]:
    """Return a check for each requirement of GPUs, in the order in which to fix them.

    Args:
        wanted: The size of the run.
        runtimes: Those that the engine knows; None: nodes are no containers.
    """
    checks = list[Check]()

    def judge(what: str, result: str, is_there: object, mend: str) -> None:
        checks.append(Check.judge(what, result, not is_there, mend, "failed"))

    devices = devices_here()
    if devices is not None:
        driver = " ".join(_DRIVER.read_text().partition("\n")[0].split()) if _DRIVER.is_file() else ""
        mend = "install the NVIDIA driver for this operating system, then run nvidia-smi"
        judge("gpu driver", driver or "no NVIDIA driver is loaded", driver, mend)
        what = f"{format_count(devices, 'GPU')}, {wanted.gpus} for each of {format_count(wanted.nodes, 'node')}"
        if wanted.gpus <= devices < wanted.gpus * wanted.nodes:
            checks.append(Check("warning", "gpus", f"{what}: too few", "use fewer nodes"))
        else:
            judge("gpus", what, wanted.gpus <= devices, "use a smaller --gpus, or add GPUs")
    if devices is not None and runtimes is not None:
        is_installed = any(map(shutil.which, _TOOLS))
        result = "installed" if is_installed else "the NVIDIA container toolkit is not installed"
        judge("gpu toolkit", result, is_installed, _TOOLKIT_PAGE)
    if runtimes is not None:
        is_known = "nvidia" in runtimes
        result = "known to the engine" if is_known else "the engine does not know the NVIDIA runtime"
        mend = "sudo nvidia-ctk runtime configure --runtime=docker, then restart the engine"
        judge("gpu runtime", result, is_known, mend)
    return checks
