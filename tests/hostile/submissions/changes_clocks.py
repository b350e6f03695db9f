"""Sets the clock back, changes limits and the name of the machine, mounts, restarts: nothing of it is allowed."""

import contextlib
import ctypes
import os
import resource
import socket
import time

libc = ctypes.CDLL(None, use_errno=True)
for act in (
    lambda: time.clock_settime(time.CLOCK_REALTIME, 0),
    lambda: socket.sethostname("owned"),
    lambda: os.setuid(0),
    lambda: os.chroot("/tmp"),
    lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
    lambda: os.sched_setaffinity(1, {0}),
    lambda: resource.setrlimit(resource.RLIMIT_NPROC, (-1, -1)),
    lambda: open("/proc/sys/kernel/core_pattern", "w").write("|/bin/true"),
    lambda: open("/proc/sysrq-trigger", "w").write("b"),
    lambda: open("/sys/fs/cgroup/memory.max", "w").write("max"),
):
    with contextlib.suppress(OSError, ValueError):
        act()
        print("allowed")
libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)
libc.unshare(0x10000000)
libc.reboot(0x1234567)
