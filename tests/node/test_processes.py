"""What state processes are in, whatever their threads do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from lab.node import processes

PROGRAM = """
import ctypes, os, platform, threading, time
libc, number = ctypes.CDLL(None), {"x86_64": 60, "aarch64": 93}[platform.machine()]
def go_on():
    while ") Z " not in open(f"/proc/self/task/{os.getpid()}/stat").read():
        pass  # the first thread has not ended yet
    print("on", flush=True)
    time.sleep(600)
threading.Thread(target=go_on).start()
libc.syscall(number, 0)
"""


def test_a_process_whose_first_thread_alone_has_ended_goes_on_and_can_be_stopped_and_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        pid = process.pid
        assert not processes.is_zombie(pid)
        assert processes.stop_processes(lambda: [pid], 20.0) == []
        assert processes.is_stopped(pid)
        processes.kill_processes([pid])
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert processes.is_zombie(pid)
        assert process.wait() == -signal.SIGKILL
    assert processes.is_zombie(pid)
