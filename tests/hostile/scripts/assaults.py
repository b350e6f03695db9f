"""Assaults that no other script here makes. Argument: which."""

import contextlib
import os
import random
import signal
import socket
import sys
import threading
import time

FOLDERS = (".", "/tmp", "/var/tmp", "/dev/shm", "/run/lock", "/dev/mqueue")


def fill():
    """Writes large files and many small ones wherever it can."""
    block = b"x" * (1 << 20)
    for folder in FOLDERS:
        with contextlib.suppress(OSError):
            os.mkdir(os.path.join(folder, "many"))
            for number in range(5000):
                open(os.path.join(folder, "many", f"{number}"), "w").close()
            with open(os.path.join(folder, "large"), "wb") as file:
                file.writelines(block for _ in range(100))


def outlast():
    """Does not end: no signal that can be caught ends it or its children, and each goes on in a session of its own."""
    for number in range(1, signal.SIGRTMAX):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    for _ in range(20):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0 and random.random() < 0.5:
                os.kill(os.getpid(), signal.SIGSTOP)
            while True:
                os.write(1, b"still here\n")
                time.sleep(0.1)
    os.closerange(0, 3)
    while True:
        time.sleep(1)


def listen():
    """Takes every port that it can, talks nonsense to every other one, and leaves somebody there who goes on."""
    stays = os.fork() == 0
    held = []
    for port in random.sample(range(1024, 65536), 30_000):
        try:
            server = socket.socket()
            server.bind(("0.0.0.0", port))
            server.listen()
            held.append(server)
        except OSError:
            server.close()
            if len(held) > 900:
                break
    targets = [(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))]
    targets += [(address, port) for address in ("node0", "node1") for port in random.sample(range(1024, 65536), 300)]
    end = time.monotonic() + 3
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(random.choice(targets), 0.2) as peer:
            peer.sendall(random.randbytes(1000))
    for _ in range(200):  # half a conversation with the store
        with contextlib.suppress(OSError):
            held.append(socket.create_connection(targets[0], 0.2))
    if stays:
        time.sleep(600)


def threads():
    """Starts threads until there is no room for one more, and ends without them."""
    stop = threading.Event()
    with contextlib.suppress(RuntimeError):
        for _ in range(5000):
            threading.Thread(target=stop.wait, daemon=True).start()
    os._exit(0)


def crash():
    """Crashes in every process of its, and in the check that comes after."""
    for _ in range(10):
        if os.fork() == 0:
            os.abort()
    os.kill(os.getpid(), signal.SIGSEGV)


def shared():
    """Fills the folder that all nodes share with links, pipes and closed folders."""
    here = os.environ["LAB_SHARED"]
    for number in range(300):
        with contextlib.suppress(OSError):
            os.symlink("/etc/shadow", os.path.join(here, f"link-{number}"))
            os.mkfifo(os.path.join(here, f"pipe-{number}"))
            os.makedirs(os.path.join(here, f"folder-{number}", "inner"), mode=0)
    with contextlib.suppress(OSError):
        os.chmod(here, 0)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
