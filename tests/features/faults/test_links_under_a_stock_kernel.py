"""What needs netem, where this machine's kernel has none: the same tests under Debian's kernel, emulated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.features.faults.test_links_in_namespaces import NEEDING_NETEM, knows_netem

ROOT = Path(__file__).parents[3]
TESTS = "tests/features/faults/test_links_in_namespaces.py"


@pytest.mark.long
@pytest.mark.timeout(1900)
@pytest.mark.skipif(os.geteuid() != 0, reason="needs kernel namespaces: run it as root")
@pytest.mark.skipif(os.geteuid() == 0 and knows_netem(), reason="needs kernel without netem: else they run natively")
def test_links_do_under_a_stock_kernel_what_they_are_asked_to() -> None:
    needed = [f"{TESTS}::{name}" for name in NEEDING_NETEM]
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", *needed]

    env = {**os.environ, "STOCK_KERNEL_S": "1800"}  # five minutes where nobody else wants the cores
    done = subprocess.run(
        [ROOT / "dev/stock-kernel", *command], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert f"{len(NEEDING_NETEM)} passed" in done.stdout, done.stdout[-2000:]
