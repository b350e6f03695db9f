"""Passes open folders and files of node 0 to a process of node 1, which outlives its rank and changes them."""

import os
import signal
import socket
import sys
import time
from contextlib import suppress

DOOR, BEAT = "/shared/door", "/shared/beat"


def outlive(here, truth, temporary):
    """Act once the agent of node 0 has removed what is in its temporary folder."""
    os.setsid()
    for number in range(1, signal.NSIG):
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    os.closerange(0, 3)
    beat = os.open(BEAT, os.O_CREAT | os.O_WRONLY, 0o666)
    with suppress(OSError):
        while True:
            os.stat("flag", dir_fd=temporary)
            if sys.argv[1] == "writes":
                os.pwrite(beat, os.urandom(20), 0)
    os.pwrite(truth, b"ANSWER = 1\n#", 0)
    for folder in (here, temporary):
        os.close(os.open("planted", os.O_CREAT | os.O_WRONLY, 0o666, dir_fd=folder))
    os._exit(0)


def attack():
    import torch.distributed as dist

    dist.init_process_group("gloo")
    if os.environ["RANK"] == "1":
        with suppress(FileNotFoundError):
            os.unlink(DOOR)
        server = socket.create_server(DOOR, family=socket.AF_UNIX)
        os.chmod(DOOR, 0o777)
    dist.barrier()
    if os.environ["RANK"] == "0":
        open("/tmp/flag", "w").close()
        with socket.socket(socket.AF_UNIX) as door:
            door.connect(DOOR)
            files = [os.open(".", os.O_RDONLY), os.open("truth.py", os.O_RDWR), os.open("/tmp", os.O_RDONLY)]
            socket.send_fds(door, [b"x"], files)
            door.recv(1)
    else:
        door, _ = server.accept()
        _, files, _, _ = socket.recv_fds(door, 1, 3)
        if os.fork() == 0:
            outlive(*files)
        door.send(b"x")
    dist.barrier()


def look():
    import truth

    from lab import note

    planted = os.listdir("/tmp") + [name for name in os.listdir(".") if name == "planted"]
    note("strange", planted + ["truth"] * (truth.ANSWER != 42))


def check(results):
    """No process is left on any node: nothing is written any more."""
    with open(BEAT, "rb") as file:
        first = file.read()
        time.sleep(0.3)
        file.seek(0)
        assert file.read() == first, "still written"


if __name__ == "__main__":
    look() if sys.argv[1] == "looks" else attack()
