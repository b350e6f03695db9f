"""Leaves things behind. Argument: what."""

import os
import socket
import subprocess
import sys
import tempfile
import time

from lab import note


def children():
    pids = [subprocess.Popen(["sleep", "1001"]).pid for _ in range(3)]
    note("pids", pids)


def forks():
    pids = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            time.sleep(1002)
            os._exit(0)
        pids.append(pid)
    note("pids", pids)


def daemons():
    """The classic double fork: a session of its own, no parent, no terminal, nothing open."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writer, f"{os.getpid()}\n".encode())
            os.closerange(0, 200)
            os.environ.clear()
            os.execv("/bin/sleep", ["sleep", "1003"])
        os._exit(0)
    os.wait()
    note("pids", [int(os.read(reader, 100))])


def talkative_children():
    """Children that keep printing into the worker's output after it has ended."""
    note("pids", [subprocess.Popen(["yes", "more and more and more"]).pid for _ in range(2)])


def many():
    """2,500 processes that do nothing."""
    loop = "count=0; while [ $count -lt 2500 ]; do sleep 1006 & count=$((count + 1)); done"
    subprocess.run(["/bin/sh", "-c", loop], check=True)


def stopped_children():
    process = subprocess.Popen(["sleep", "1004"])
    process.send_signal(19)
    note("pids", [process.pid])


def files():
    paths = [
        os.path.abspath("left.txt"),
        os.path.join(tempfile.gettempdir(), "left"),
        "/tmp/left-here",
        "/dev/shm/left",
    ]
    paths = paths if sys.argv[2:] == ["everywhere"] else paths[:2]
    for path in paths:
        os.makedirs(f"{path}.d/deep")
        with open(path, "w") as file, open(f"{path}.d/deep/file", "w") as deep:
            file.write("x" * 100_000)
            deep.write("y")
    os.chmod("left.txt.d/deep", 0)
    note("paths", paths)


def port():
    server = socket.create_server(("127.0.0.1", 0))
    os.set_inheritable(server.fileno(), True)
    process = subprocess.Popen(["sleep", "1005"], close_fds=False)
    note("port", server.getsockname()[1])
    note("pids", [process.pid])


if __name__ == "__main__":
    globals()[sys.argv[1]]()
