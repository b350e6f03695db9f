"""Does what no honest script does to the agent that started it. Argument: what."""

import json
import os
import socket
import sys
import time

from lab import note


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


def statements():
    """Says to the agent what nobody of the lab would say."""
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    agent.connect(os.environ["LAB_NOTE_SOCKET"])
    whole = {"is": "note", "rank": int(os.environ["RANK"]), "time": time.time(), "name": "x", "value": 1}
    raised = {**whole, "is": "raised", "error": "E", "traceback": "T"}
    wrong = [["a", "list"], {"a": 1}, nested(900), "text", None, True, float("nan"), float("inf"), 10**400, -1, 1e300]
    for data in [whole, raised, {**whole, "is": "imported", "names": ["x"]}]:
        for name in data:
            agent.send(json.dumps({key: value for key, value in data.items() if key != name}).encode())
            for value in wrong:
                if name != "value" or value in (nested(900), 10**400) or value != value:
                    agent.send(json.dumps({**data, name: value}).encode())
    for line in (
        b"",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"{" * 50_000,
        b'{"is":"note","rank":0,"time":1e999,"name":"x"}',
    ):
        agent.send(line)
    for _ in range(2000):
        agent.send(b"x" * 1000)
    note("honest", 1)


def traces():
    """Writes what no recorder writes into its own trace."""
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "memfd:trace" not in os.readlink(f"/proc/self/fd/{fd}"):
                continue
        except OSError:
            continue
        for line in (
            b'{"k":"begin","t":1,"i":1e999,"op":"all_reduce","g":"0","in":[["float32",[1]]]}',
            b'{"k":["begin"],"t":1}',
            b'{"k":"group","t":1e999,"g":["0"],"ranks":[99999999999999999999]}',
            b'{"k":"ddp","t":-5,"d":{},"params":[["w","f",["a","b"]]],"buckets":[[0]]}',
            b"[" * 5000,
            b"\xff\xfe\x00binary\x00",
            b"x" * 10_000_000,
            b'{"k":"mark","t":5,"n":' + b"[" * 900 + b"]" * 900 + b"}",
        ):
            os.write(int(fd), line + b"\n")
        os.write(int(fd), b'{"k":"begin","op":"half a li')
        note("honest", 1)


def folders():
    """Leaves folders that are hard to remove."""
    here = os.open(".", os.O_RDONLY)
    for _ in range(int(sys.argv[2])):
        os.mkdir("deeper", dir_fd=here)
        inner = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    os.makedirs("closed/inner/most")
    open("closed/inner/most/file", "w").close()
    for name in ("closed/inner/most", "closed/inner", "closed"):
        os.chmod(name, 0)
    note("honest", 1)


def processes():
    """Starts many processes that start others, and does not wait for them."""
    for _ in range(int(sys.argv[2])):
        if os.fork() == 0:
            os.setsid()
            os.fork()
            time.sleep(600)
            os._exit(0)
    note("honest", 1)


def escapes():
    """Prints what acts on a terminal, as text, as raw bytes, in two pieces, and in an error."""
    print("\x1b]52;c;c3R1ZmY=\x07 \x1b]0;title\x1b\\ \x1b[?1049h \x9b2J \u202e \x1b[31mred\x1b[0m", flush=True)
    os.write(1, b"\x9b2J raw \x90\n")
    os.write(1, b"split \x1b")
    time.sleep(0.01)
    os.write(1, b"]0;title\x07\n")
    note("\x1b]0;title\x07", "\x1b[2J\x9b2J")
    raise ValueError("\x1b]52;c;eA==\x07 \x9b2J \udc9b")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
