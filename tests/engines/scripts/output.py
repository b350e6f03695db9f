"""Prints in ways that are hard to keep whole. Arguments: the way, and what it needs."""

import fcntl
import os
import signal
import subprocess
import sys
import termios


def lines(count):
    """Numbered lines of 1,000 bytes."""
    for number in range(int(count)):
        print(f"{number:09d} {'x' * 989}")


def binary():
    """Every byte value, invalid UTF-8, NULs and carriage returns."""
    data = bytes(range(256)) * 64 + b"\xff\xfe\x00\r\n\x80" * 1000
    sys.stdout.buffer.write(data)
    sys.stdout.flush()


def long_lines():
    """Lines of 1 MB."""
    for number in range(5):
        print(str(number) * 1_000_000)


def split_characters():
    """A character of several bytes, written in two pieces."""
    for _ in range(100):
        os.write(1, b"\xe2\x82")
        os.write(1, b"\xac\n")


def bars():
    """A progress bar within another one, as tqdm draws them, with a line of standard output after each."""
    sys.stderr.write("\router")
    for outer in range(3):
        for inner in range(50):
            sys.stderr.write("\n")
            sys.stderr.write(f"\rinner {inner}")
            sys.stderr.write("\x1b[A")
        sys.stderr.write("\n\r        \r\x1b[A")
        sys.stderr.write(f"\router {outer}")
    sys.stderr.write("\n")
    print("done")


def no_newline():
    print("the end has no newline", end="")


def killed_in_mid_line():
    print("a whole line")
    sys.stdout.write("half a li")
    os.kill(os.getpid(), signal.SIGKILL)


def alternates():
    """Every line says its number; odd ones go to standard error. Two pipes that hold something have no order."""
    for number in range(500):
        stream = sys.stderr if number % 2 else sys.stdout
        print(f"line {number}", file=stream, flush=True)
        while not taken(stream):
            os.sched_yield()


def taken(stream):
    """Whether all that was written to a pipe has been read."""
    return not int.from_bytes(fcntl.ioctl(stream, termios.FIONREAD, bytes(4)), sys.byteorder)


def child_prints():
    subprocess.run([sys.executable, "-c", "print('from a child' * 10)"], check=True)
    print("from the worker")


def dev_stderr():
    for path in ("/dev/stdout", "/dev/stderr"):
        with open(path, "w") as file:
            file.write(f"written to {path}\n")
    subprocess.run("echo by a shell >/dev/stderr", shell=True, check=True)


def closes_stdout():
    print("before")
    sys.stdout.close()
    print("after", file=sys.stderr)


def closes_descriptor_1():
    print("before")
    os.close(1)
    print("after", file=sys.stderr)


def replaces_stdout():
    print("before")
    sys.stdout = open("own.log", "w")
    print("into a file")


def fills_up_with(marker):
    """What a rank prints just before it dies must arrive, although nobody flushed anything."""
    for number in range(3000):
        print(f"{marker} {number}")
    os._exit(5)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
