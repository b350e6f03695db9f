"""Checks of `lab doctor` for GPUs: what they need on this machine and of the engine, and a self-test on them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path

from lab.engine import ownership as label
from lab.engine.docker.connection import Connection
from lab.engine.docker.image import inspect_image
from lab.engine.doctor import Check, Wanted, devices_here
from lab.errors import LabError
from lab.features.gpu import self_test
from lab.words import format_count

_DEADLINE_S, _CONTAINER_DEADLINE_S = 270, 300
_DRIVER = Path("/proc/driver/nvidia/version")
_TOOLS = ("nvidia-ctk", "nvidia-container-cli", "nvidia-container-runtime")
_SEE = "see nvidia-smi and dmesg"
_TOOLKIT_PAGE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"


def check_gpus(wanted: Wanted, connection: Connection | None, image: str) -> list[Check]:
    """Return the checks of GPUs; see `lab.engine.doctor.gpu_checks`."""
    checks: list[Check] = []
    if wanted.gpus:
        runtimes = connection.ask("GET", "/info").get("Runtimes", {}) if connection is not None else None
        checks += judge_gpus(wanted, runtimes)
    if wanted.gpu_test:
        variables = {self_test.TEXT: Path(self_test.__file__).read_text(encoding="utf-8")}
        checks += _test_in_container(connection, image, variables) if connection is not None else _test_here(variables)
    return checks


def _test_here(variables: Mapping[str, str]) -> list[Check]:
    """Run the self-test with this interpreter, which local nodes use."""
    run = partial(subprocess.run, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_DEADLINE_S)
    try:
        done = run([sys.executable, "-c", self_test.START], env={**os.environ, **variables}, check=False)
    except subprocess.TimeoutExpired:
        return [Check("failed", "gpu test", f"did not end within {_DEADLINE_S} s", _SEE)]
    return read_steps(done.stdout, done.returncode, done.stderr)


def _test_in_container(connection: Connection, image: str, variables: Mapping[str, str]) -> list[Check]:
    """Run the self-test in a container that has all GPUs."""
    if inspect_image(connection, image) is None:
        return [Check("failed", "gpu test", f"{image} does not exist yet", "lab up")]
    body = {
        "Image": image,
        "Entrypoint": ["/bin/sh", "-c", 'exec "$(command -v python3 || command -v python)" "$@"', "sh"],
        "Cmd": ["-c", self_test.START],
        "Env": [f"{name}={value}" for name, value in variables.items()],
        "Labels": {label.OWNER: label.current_owner(), label.CLUSTER: "doctor"},
        "HostConfig": {"DeviceRequests": [{"Count": -1, "Capabilities": [["gpu"]]}], "ShmSize": 1 << 30},
    }
    try:
        code, output, errors = connection.run_container(body, deadline_s=_CONTAINER_DEADLINE_S)
    except LabError as error:  # the engine has no such device
        return [Check("failed", "a container with GPUs", error.message, "`lab doctor --gpus 1` shows what is missing")]
    return [Check("ok", "a container with GPUs", image), *read_steps(output, code, errors)]


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


def read_steps(output: str, code: int, errors: str = "") -> list[Check]:
    """Return a check for each step of the self-test; for a test that ended early, also its last line."""
    checks = []
    for line in output.splitlines():
        try:
            step = json.loads(line)
            checks.append(Check.judge(step["what"], step["found"], not step["worked"], step["mend"], "failed"))
        except (ValueError, KeyError, TypeError):  # output of torch or nccl
            continue
    if code and not any(check.level == "failed" for check in checks):
        last = next(iter(errors.strip().splitlines()[-1:]), f"exit code {code}")
        checks.append(Check("failed", "gpu test", f"it ended early: {last}", _SEE))
    return checks
