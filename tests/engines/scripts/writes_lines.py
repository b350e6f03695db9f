"""Writes lines as a recorder does, and reads them as an agent does: `writes_lines.py RECORDER ACTION [NUMBER]`.

What was passed on is printed as JSON. The actions are the functions that take a recorder and a file.
"""

import ctypes
import fcntl
import json
import mmap
import os
import resource
import signal
import sys
import threading

from lab.node.recorder import compiled
from lab.node.recorder.journal import journal
from lab.node.trace_file import TraceFile

MIB = 1 << 20
THREADS = 4


class PythonRecorder:
    """What the compiled recorder has for lines, by the means of the Python one."""

    def write(self, line):
        facts = json.loads(line)
        journal.add(facts.pop("k"), **facts)

    def start(self, fd, _folder, _hidden, values, _limit):
        journal.open(fd, rank=0, recorder="python", torch="", values=values)

    def stop(self):
        was_on, journal.on = journal.on, False
        return was_on


def line(thread, number):
    return b'{"k":"mark","thread":%d,"number":%d,"n":"%b"}\n' % (thread, number, b"x" * (number * 7 % 300))


def write_lines(recorder, thread, lines, written=None):
    """`written`: where each thread tells how many of its lines are written."""
    for number in range(lines):
        recorder.write(line(thread, number))
        if written is not None:
            written[thread] = number + 1


def write_from_threads(recorder, lines, written=None):
    arguments = [(recorder, thread, lines, written) for thread in range(THREADS)]
    writers = [threading.Thread(target=write_lines, args=each) for each in arguments]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()


def path_of(file):
    return f"/proc/self/fd/{file.fd}"


def passed_on(file, **ended):
    return b"".join(file.chunks(**ended))


def summary(data):
    """How many lines follow the start, which are damaged, and whether each thread's are all there, in order."""
    *lines, rest = data.split(b"\n")
    lines = [text for text in lines if b'"k":"start"' not in text]
    damaged, gaps, latest = 0, 0, [-1] * THREADS
    for text in lines:
        try:
            found = json.loads(text)
        except ValueError:
            damaged += 1
            continue
        if "thread" in found:
            gaps += found["number"] != latest[found["thread"]] + 1
            latest[found["thread"]] = found["number"]
    last = json.loads(lines[-1]) if lines and not damaged else None
    counts = {"lines": len(lines), "damaged": damaged, "gaps": gaps, "rest": len(rest), "latest": latest}
    return {**counts, "nul": b"\0" in data, "last": last}


def kills(recorder, _, count):
    """Processes that write from several threads, each killed once some of its lines can be read."""
    found = []
    written = (ctypes.c_int64 * THREADS).from_buffer(mmap.mmap(-1, mmap.PAGESIZE))
    for kill in range(count):
        written[:] = [0] * THREADS
        file = TraceFile()
        pid = os.fork()
        if pid == 0:
            recorder.start(file.fd, "/", [], 0, 256 * MIB)
            write_from_threads(recorder, 10**9, written)
        data = b""
        while len(data) < 1000 * (kill % 50):
            data += passed_on(file)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        seen = summary(data + passed_on(file, ended=True))
        lost = sum(latest + 1 < told for latest, told in zip(seen["latest"], written, strict=True))
        found.append({**seen, "lost": lost})
        file.close()
    return found


def threads(recorder, file):
    """Several threads, many chunks of the file, read all the while; then the lines that follow the recorder's end."""
    recorder.start(file.fd, "/", [], 0, 256 * MIB)
    data, writer = b"", threading.Thread(target=write_from_threads, args=(recorder, 20_000))
    writer.start()
    while writer.is_alive():
        data += passed_on(file)
    recorder.stop()
    os.write(file.fd, b'{"k":"stop"}\n')
    data += passed_on(file)
    return {**summary(data), "held": file.held_bytes}


def limit(recorder, file):
    """More lines than the file may hold."""
    recorder.start(file.fd, "/", [], 0, MIB)
    write_lines(recorder, 0, 100_000)
    data = passed_on(file)
    return {**summary(data), "was_on": recorder.stop(), "size": len(data), "held": file.held_bytes}


def full(recorder, file):
    """More lines than there is room for: the process may make files of so many bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))
    recorder.start(file.fd, "/", [], 0, 256 * MIB)
    write_lines(recorder, 0, 100_000)
    data = passed_on(file, ended=True)
    return {**summary(data), "was_on": recorder.stop(), "size": len(data), "held": file.held_bytes}


def long(recorder, file):
    """Lines that are longer than what is mapped at once."""
    recorder.start(file.fd, "/", [], 0, 256 * MIB)
    for number in range(20):
        recorder.write(b'{"k":"mark","thread":0,"number":%d,"n":"%b"}\n' % (number, b"x" * (number * 100_003)))
    return summary(passed_on(file))


def fork(recorder, file):
    """A process and its fork, which is not to write."""
    recorder.start(file.fd, "/", [], 0, 256 * MIB)
    write_lines(recorder, 0, 10)
    pid = os.fork()
    if pid == 0:
        write_lines(recorder, 0, 10)
        os._exit(recorder.stop())
    _, status = os.waitpid(pid, 0)
    recorder.write(line(0, 10))
    return {**summary(passed_on(file)), "status": status}


def unmappable(recorder, file):
    """A descriptor that is open for writing only."""
    fd = os.open(path_of(file), os.O_WRONLY | os.O_APPEND)
    recorder.start(fd, "/", [], 0, 256 * MIB)
    write_lines(recorder, 0, 1000)
    recorder.stop()
    os.write(fd, b'{"k":"stop"}\n')
    return summary(passed_on(file))


def cut(recorder, _):
    """A file that anybody may make shorter, and that is made shorter while lines are written."""
    fd = os.memfd_create("cut")
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    recorder.start(fd, "/", [], 0, 256 * MIB)
    write_lines(recorder, 1, 1000)
    os.ftruncate(fd, 0)
    write_lines(recorder, 0, 1000)
    return summary(passed_on(TraceFile(made=fd)))


def main():
    kind, action, *words = sys.argv[1:]
    recorder = compiled.load_recorder() if kind == "compiled" else PythonRecorder()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    print(json.dumps(globals()[action](recorder, TraceFile(), *map(int, words))))


if __name__ == "__main__":
    main()
