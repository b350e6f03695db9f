"""What needs netem, where this machine's kernel has none: the same tests under Debian's kernel, emulated."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.node.test_links_in_namespaces import knows_netem

ROOT = Path(__file__).parents[3]
TESTS = "tests/unit/node/test_links_in_namespaces.py"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.skipif(os.geteuid() != 0, reason="needs kernel namespaces: run it as root")
@pytest.mark.skipif(os.geteuid() == 0 and knows_netem(), reason="needs kernel without netem: else they run natively")
def test_links_do_under_a_stock_kernel_what_they_are_asked_to() -> None:
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", TESTS]

    done = subprocess.run([ROOT / "dev/stock-kernel", *command], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    passed = re.search(r"(\d+) passed, 1 skipped", done.stdout)  # the one that wants a kernel without netem
    assert passed, done.stdout[-2000:]
    assert int(passed[1]) >= 15
