"""The self-test of `lab doctor --gpu`, started and read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from lab.engine.doctor import Check, checked
from lab.features.gpu.on_node import self_test


def self_test_command() -> tuple[list[str], dict[str, str]]:
    """The words after the interpreter, and the variables, of the self-test."""
    return ["-c", self_test.START], {self_test.TEXT: Path(self_test.__file__).read_text(encoding="utf-8")}


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
            timeout=3 * self_test.DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [Check("failed", "gpu test", f"no end after {3 * self_test.DEADLINE_S} s", "see nvidia-smi and dmesg")]
    return told_steps(done.stdout, done.returncode, done.stderr)


def told_steps(output: str, code: int, errors: str = "") -> list[Check]:
    """What the self-test told, a line a step; one that ended without a word is told by its last words."""
    found = []
    for line in output.splitlines():
        try:
            step = json.loads(line)
            found.append(checked(step["what"], bool(step["worked"]), step["found"], step["mend"]))
        except (ValueError, KeyError, TypeError):  # what torch or nccl print
            continue
    if code and not any(check.level == "failed" for check in found):
        last = next(iter(errors.strip().splitlines()[-1:]), f"exit code {code}")
        found.append(Check("failed", "gpu test", f"it ended early: {last}", "see nvidia-smi and dmesg"))
    return found
