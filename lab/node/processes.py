"""Operations of an agent on processes: find, end, and measure them, and drop their privileges."""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import resource
import signal
import termios
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_LAST_CAPABILITY = 63
_SIGNAL_S = 0.0005
"""Delay until a sent signal takes effect."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
"""The unit in which the kernel reports when a process started, and its CPU time."""
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Adopt every orphaned descendant, in spite of forks and sessions."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def detach_from_agent(streams: Sequence[int], keep: Collection[int]) -> None:
    """Detach a new child from the agent: a new session and streams, default signal handlers, no descriptors but `keep`.

    `streams` are standard input, output, and error; -1: empty.
    """
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    set_streams(streams)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd not in keep:
            with suppress(OSError):  # the listing's own descriptor
                os.close(fd)


def fork_helper(work: Callable[[], object], keep: Collection[int] = ()) -> int:
    """Fork a process that works for the agent and ends with it; return its pid."""
    agent, pid = os.getpid(), os.fork()
    if pid == 0:
        try:
            detach_from_agent((-1, 2, 2), keep)
            die_with_parent(agent)
            work()
        finally:
            os._exit(0)
    return pid


def set_streams(streams: Sequence[int]) -> None:
    """Make these standard input, output, and error; -1: empty."""
    for number, fd in enumerate(streams):
        os.dup2(fd if fd >= 0 else os.open(os.devnull, os.O_RDONLY), number)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent, whose pid is given, dies."""
    signal_on_parent_death(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def end_by_signal(number: int) -> NoReturn:
    """End this process by a signal, without a core dump of its own."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def signal_on_parent_death(number: int) -> None:
    """Have the kernel send this process a signal when its parent dies."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def drop_privileges(uid: int, gid: int) -> None:
    """Become this user, without any privilege for good; do nothing if this process is not root."""
    if os.geteuid() != 0:
        return
    for capability in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    become_user(uid, gid)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _libc.capset(header, (ctypes.c_uint32 * 6)())
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # else /proc/self belongs to root after the change of user


def become_user(uid: int, gid: int) -> None:
    """Become this user, without other groups; needs root."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def prefer_as_oom_victim() -> None:
    """Tell the kernel to kill this process before the agent when memory runs out."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def readable_bytes(pipe: int) -> int:
    """Return the number of bytes that wait in a pipe."""
    waiting = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return waiting[0]


def read_words(*paths: str) -> Iterator[list[str]]:
    """Yield the words of each line in files of the kernel; skip files that do not exist."""
    for path in paths:
        with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            yield from map(str.split, file)


def _children(pid: int) -> list[int]:
    """Return the children of all threads of a process; empty if it has ended.

    The kernel may omit some children while others end, but not all of them.
    """
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it ended while we looked
        return []
    words = read_words(*(f"/proc/{pid}/task/{thread}/children" for thread in threads))
    return [int(child) for children in words for child in children]


def read_stat(process: int | str) -> list[bytes]:
    """Return the kernel's facts of a process, or of a `PID/task/TID`, from its state on; empty if it has ended."""
    with suppress(OSError), open(f"/proc/{process}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()
    return []


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 if it has ended."""
    return int((read_stat(pid)[1:2] or [b"0"])[0])


def children_of() -> Callable[[int], list[int]]:
    """Return a function that lists the children of a process."""
    if os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return _children
    children: dict[int, list[int]] = {}  # a kernel without lists of children
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        children.setdefault(parent_of(pid), []).append(pid)
    return lambda pid: children.get(pid, [])


def list_descendants(*roots: int) -> list[int]:
    """Return every process below `roots`, parents before children."""
    children = children_of()
    pids = [child for root in roots for child in children(root)]
    for pid in pids:
        pids += children(pid)
    return pids


def read_load_s(pid: int) -> float:
    """Return for how long a process and its descendants ran or waited for a core, in seconds; main threads only."""
    files = (f"/proc/{one}/schedstat" for one in (pid, *list_descendants(pid)))
    return sum(int(words[0]) + int(words[1]) for words in read_words(*files)) / 1e9


def read_cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU time that processes have used, in seconds."""
    return sum(sum(map(int, read_stat(pid)[11:13])) for pid in pids) * TICK_S


def read_used_s(pid: int) -> float:
    """Return how much a process and everything below it have computed, or waited for a core, in seconds."""
    return read_load_s(pid) + read_cpu_s((pid, *list_descendants(pid)))


def filter_catching(number: int, pids: list[int]) -> list[int]:
    """Return the processes that have a handler for a signal; the signal might kill the others."""
    caught = ((pid, words[1]) for pid in pids for words in read_words(f"/proc/{pid}/status") if words[0] == "SigCgt:")
    return [pid for pid, signals in caught if int(signals, 16) >> (number - 1) & 1]


def kill_descendants(keep: set[int], deadline_s: float, on_progress: Callable[[], object] = lambda: None) -> list[int]:
    """Kill everything below this process except the children in `keep`, repeatedly until nothing is left.

    `on_progress` is called in each round with processes. Returns the processes that are left at the deadline.
    """
    end = time.monotonic() + deadline_s
    while True:
        for pid in children_of()(os.getpid()):
            if pid not in keep:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        left = [pid for pid in list_descendants(os.getpid()) if pid not in keep]
        if not left or time.monotonic() > end:
            return left
        on_progress()
        kill_processes([pid for pid in left if not is_zombie(pid)])  # the parent of a zombie has to go first
        time.sleep(min(0.001 + len(left) * 2e-5, 0.05))  # they need the cores to end


def kill_processes(pids: Collection[int]) -> None:
    """Kill processes; stop all of them first, so that none starts another one meanwhile."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with suppress(OSError):  # gone already
                os.kill(pid, number)


def signal_session(pid: int, number: int) -> None:
    """Send a signal to a process and its session."""
    with suppress(ProcessLookupError):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            os.kill(pid, number)


def stop_processes(find: Callable[[], list[int]], deadline_s: float) -> list[int]:
    """Stop processes, parents first, until every process that `find` returns is stopped; return those that are not.

    A stopped parent starts no other process.
    """
    end = time.monotonic() + deadline_s
    while running := [pid for pid in find() if not (is_stopped(pid) or is_zombie(pid))]:
        if time.monotonic() > end:
            break
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        time.sleep(_SIGNAL_S)
    return running


def continue_processes(pids: list[int]) -> None:
    """Continue processes; parents, which come first in the list, are last, so that they find their children running."""
    for pid in reversed(pids):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def kill_user_processes(uid: int, gid: int) -> None:
    """Kill every process of a user at once, even those that start and end too fast to be listed."""
    run_as(uid, gid, lambda: os.kill(-1, signal.SIGKILL))


def run_as(uid: int, gid: int, action: Callable[[], object]) -> str:
    """Call a function as another user, in a fork; return its result as text, empty if that failed."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
    except OSError:  # the limit for processes is reached
        pid = -1
    if pid == 0:
        try:
            become_user(uid, gid)
            os.write(writer, str(action()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        result = answer.read()
    if pid > 0:
        os.waitpid(pid, 0)
    return result


def is_zombie(pid: int) -> bool:
    """Return whether a process has ended, or does not exist."""
    return _state(pid) in ("Z", "")


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped a process."""
    return _state(pid) == "T"


def _state(pid: int) -> str:
    """Return the letter of a process's state in /proc; empty if it does not exist.

    If only its main thread has ended, return the state of another thread.
    """
    words = read_stat(pid)
    states = words[:1]
    if states == [b"Z"] and int(words[17]) > 1:
        with suppress(OSError):
            others = [
                state for thread in os.listdir(f"/proc/{pid}/task") for state in read_stat(f"{pid}/task/{thread}")[:1]
            ]
            states = [state for state in others if state not in b"ZX"] or states
    return states[0].decode() if states else ""


def signal_name(number: int) -> str | None:
    """Return the name of a signal, `SIGRTMIN+3` among them; None for 0."""
    if not number:
        return None
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def held_bytes(pids: list[int]) -> dict[int, int]:
    """Return the memory of each process (PSS: shared pages are divided among their users)."""
    lines = ((pid, words) for pid in pids for words in read_words(f"/proc/{pid}/smaps_rollup"))
    return {pid: int(words[1]) * 1024 for pid, words in lines if words[0] == "Pss:"}


def sizes_over(limit_bytes: int, pids: list[int]) -> dict[int, int]:
    """Return the memory of each process if their sum reaches the limit; otherwise empty."""
    resident = sum(int(words[1]) for pid in pids for words in read_words(f"/proc/{pid}/statm"))
    # The resident size is cheaper to read, and never smaller.
    sizes = held_bytes(pids) if resident * os.sysconf("SC_PAGE_SIZE") >= limit_bytes else {}
    return sizes if sum(sizes.values()) >= limit_bytes else {}


def allow_open_files(count: int) -> int:
    """Raise this process's limit for open files to at least this; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # the kernel allows no process so many
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
