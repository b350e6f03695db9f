"""Leaves something wherever that can be done: in every folder of the file system, and in the kernel."""

import contextlib
import ctypes
import os
import socket
import struct

from lab import note

LIBC = ctypes.CDLL(None, use_errno=True)
IPC_CREAT = 0o1000
RANK = os.environ["RANK"]
places = []
for top, folders, _ in os.walk("/"):
    if top == "/":
        folders[:] = [name for name in folders if name not in ("proc", "sys", "shared")]
    for name in (f"left-by-{RANK}", f".left-hidden-by-{RANK}"):
        try:
            os.makedirs(os.path.join(top, name, "deep"))
            open(os.path.join(top, name, "deep", "file"), "w").write("x" * 10_000)
            os.symlink("/etc/passwd", os.path.join(top, name, "link"))
            os.mkfifo(os.path.join(top, name, "pipe"))
            os.chmod(os.path.join(top, name, "deep"), 0)
        except OSError:
            continue
        places.append(top)
    folders[:] = [name for name in folders if "left" not in name]
    with contextlib.suppress(OSError):  # not in all file systems
        os.setxattr(top, f"user.left-by-{RANK}", b"the answer")

queue = LIBC.mq_open(f"/left-{RANK}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
made = [
    LIBC.shmget(1234, 4096, IPC_CREAT | 0o666),
    LIBC.semget(1234, 3, IPC_CREAT | 0o666),
    LIBC.msgget(1234, IPC_CREAT | 0o666),
    queue,
    *(LIBC.msgget(0, IPC_CREAT | 0o666) for _ in range(500)),
]
facts = ctypes.create_string_buffer(200)  # of a queue: its owner is behind its key
LIBC.msgctl(made[-1], 2, facts)
struct.pack_into("I", facts, 4, 4242)
made[-1] = LIBC.msgctl(made[-1], 1, facts)  # IPC_SET: it belongs to another user now
name = socket.socket(socket.AF_UNIX)
name.bind(f"\0left-by-{RANK}")
note("places", places)
note("made in the kernel", min(made) >= 0)
if RANK == "0" and os.fork() == 0:
    os.setsid()
    while True:
        if os.fork():
            os._exit(0)  # its child goes on, and so on
