"""A process that goes on is left to itself, and Python says nothing of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

PROGRAM = """
import gc, os, subprocess
from lab.engine.interrupts import may_outlive
nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
def start(*argv):
    process = subprocess.Popen(argv, **nothing)
    may_outlive(process)
    return process.pid
ended, lives = start("true"), start("sleep", "600")
gc.collect()
while os.path.exists(f"/proc/{ended}"):
    start("true")
print(lives)
"""


def test_nothing_is_said_of_a_process_that_goes_on_and_one_that_ends_is_no_zombie() -> None:
    words = [sys.executable, "-X", "dev", "-c", PROGRAM]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    os.kill(int(done.stdout), signal.SIGKILL)
    assert done.stderr == ""
