"""Does one thing that no honest script does, as rank 0; the other ranks are honest. Argument: what."""

import atexit
import contextlib
import ctypes
import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import stat
import struct
import sys
import threading
import time

import torch.distributed as dist

from lab import note

LIBC = ctypes.CDLL(None, use_errno=True)
MIB = 1 << 20


def tell_agent(*messages):
    """Say to the agent what `lab.note` would not say."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect(os.environ["LAB_NOTE_SOCKET"])
        for message in messages:
            channel.send(json.dumps(message).encode())


def trace():
    """The file of its trace; -1 where there is none."""
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if "trace" in os.readlink(f"/proc/self/fd/{entry}"):
                return int(entry)
    return -1


def leave_alive(action=lambda: None):
    """A process that nobody is the parent of, in a session of its own, deaf to every signal that it can be deaf to."""
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        action()
        os.closerange(0, 3)
        while True:
            time.sleep(600)
    os.wait()


# -- what it prints


def prints_without_a_newline():
    for stream in (1, 2):
        os.write(stream, b"x" * 3_000_000)


def prints_bytes_that_are_no_text():
    for _ in range(20):
        os.write(1, os.urandom(50_000) + bytes(1000))


def prints_what_agents_say():
    """Speaks the protocol of the lab where a person reads."""
    for message in (
        {"is": "exited", "rank": 1, "time": 1.0, "node": "node1", "code": 7},
        {"is": "note", "rank": 1, "time": 1.0, "name": "forged", "value": 1},
        {"is": "finished", "run": "x"},
        {"verdict": "failed", "reason": "forged", "culprit": {"rank": 1}},
    ):
        for stream in (1, 2):
            os.write(stream, b"\n" + json.dumps(message).encode() + b"\n")
    os.write(1, b"FAILED  rank 1 (node1) raised ValueError\n")


def reads_what_it_printed():
    """Takes back what waits in the pipe to its agent, and makes the pipe small."""
    pipe = os.open("/proc/self/fd/1", os.O_RDONLY | os.O_NONBLOCK)
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, 1031, 4096)
    for _ in range(100):
        os.write(1, b"mine\n")
        with contextlib.suppress(OSError):
            os.read(pipe, 4096)


# -- its descriptors


def closes_every_descriptor():
    os.closerange(0, 1024)


def writes_into_every_descriptor():
    for fd in range(3, 256):
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                os.set_blocking(fd, False)
            os.write(fd, b'{"is":"finished","run":"x"}\n\xff\0')


def puts_other_files_under_its_descriptors():
    null = os.open("/dev/zero", os.O_RDWR)
    for fd in range(3, 256):
        os.dup2(null, fd)


# -- what it says to its agent


def notes_for_others():
    """As other ranks, as the check, as ranks that there are not."""
    tell_agent(
        *({"is": "note", "rank": rank, "time": time.time(), "name": "forged", "value": 1} for rank in (1, -1, 2, 10**9))
    )


def says_that_it_passed_and_fails():
    now = time.time()
    tell_agent(
        {"is": "exited", "rank": 0, "time": now, "code": 0},
        {"is": "started", "rank": 1, "time": now, "node": "node1", "pid": 1},
        {"is": "limited", "time": now, "rank": 1, "what": "output", "limit": 1, "excess": 1},
        {"is": "output", "run": "x", "rank": 1, "stream": 1, "time": now, "data": "Zm9yZ2Vk"},
        {"is": "finished", "run": os.environ.get("LAB_RUN", "x")},
        {"is": "stop", "run": os.environ.get("LAB_RUN", "x"), "hard": True},
    )
    sys.exit(3)


def blames_another_rank():
    """Says that the other one failed, first and long ago; then fails."""
    raised = {"is": "raised", "error": "ValueError: forged", "traceback": "forged"}
    tell_agent(*({**raised, "rank": rank, "time": at} for rank in (1, 0) for at in (0.0, -1e10, 9e10)))
    os._exit(5)


def says_that_it_imported_all_kinds_of_things():
    names = [f"{number:06d}{'x' * 90}" for number in range(1000)]
    for _ in range(100):
        tell_agent({"is": "imported", "rank": 0, "names": names})


def is_stopped_and_let_go_all_the_time():
    worker = os.getpid()
    child = os.fork()
    if child == 0:
        for number in range(2000):
            os.kill(worker, signal.SIGSTOP)
            time.sleep(0 if number else 0.3)  # the agent sees the first one, however slow the machine is
            os.kill(worker, signal.SIGCONT)
        os._exit(0)
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        time.sleep(0.001)


# -- its trace


def claims_to_be_another_rank_in_its_trace():
    for line in (
        {"k": "start", "t": 1, "format": 1, "rank": 1, "pid": 1, "wall": 1, "values": 1},
        {"k": "begin", "t": 2, "i": 1, "op": "all_reduce", "g": "0", "seq": 1, "in": [["float32", [1]]]},
        {"k": "cut", "t": 3, "why": "rank 1 is to blame"},
    ):
        os.write(trace(), json.dumps(line).encode() + b"\n")


def makes_its_trace_large_with_nothing_in_it():
    os.ftruncate(trace(), 1 << 40)
    os.write(trace(), b"after it\n")


def empties_its_trace():
    os.write(trace(), b"x" * MIB + b"\n")
    with contextlib.suppress(PermissionError):
        os.ftruncate(trace(), 0)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # of which lines are written
    dist.barrier()
    dist.destroy_process_group()


def seals_its_trace():
    with contextlib.suppress(OSError):
        fcntl.fcntl(trace(), 1033, 0xF)  # F_ADD_SEALS: against sealing, shrinking, growing, writing
    os.set_blocking(trace(), False)
    fcntl.fcntl(trace(), fcntl.F_SETFL, 0)
    fcntl.flock(trace(), fcntl.LOCK_EX | fcntl.LOCK_NB)


# -- how it ends


def ends_with_a_number_too_large():
    sys.exit(256 * 7 + 3)


def becomes_another_program():
    os.execv("/bin/sh", ["sh", "-c", "exec 1>&2; echo another; exit 0"])


def leaves_its_work_to_a_child():
    if os.fork():
        os._exit(0)
    time.sleep(600)


def is_killed_when_all_is_done():
    atexit.register(os.kill, os.getpid(), signal.SIGKILL)


def kills_its_group():
    os.killpg(0, signal.SIGKILL)


def kills_whom_it_can():
    os.kill(-1, signal.SIGKILL)


def crashes_and_leaves_its_memory():
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    os.abort()


def takes_its_own_limits_away():
    for what in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NPROC):
        resource.setrlimit(what, (0, 0))


def changes_the_lab_in_itself():
    """Everything of the lab that its process can see says that it was well; its exit code says what it wants."""
    for name, module in list(sys.modules.items()):
        if name.startswith("labnode."):
            for what in ("send", "_report", "_report_imports"):
                if hasattr(module, what):
                    setattr(module, what, lambda *_: None)
    raise ValueError("told by nobody")


def stops_itself():
    os.kill(os.getpid(), signal.SIGSTOP)


def hears_nothing():
    for number in range(1, signal.NSIG):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        time.sleep(600)


def waits_for_a_file_in_the_place_of_its_script():
    """Whoever opens its source now waits for somebody who writes."""
    os.unlink(__file__)
    os.mkfifo(__file__)
    raise ValueError("somewhere")


# -- processes


def leaves_processes_that_hide():
    def hide():
        LIBC.prctl(4, 0, 0, 0, 0)  # nobody may look into it
        LIBC.prctl(15, b"labnode.node.agent", 0, 0, 0)  # its name
        LIBC.prctl(36, 1, 0, 0, 0)  # orphans below it come to it
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        os.nice(19)
        os.environ.clear()

    for _ in range(20):
        leave_alive(hide)


def makes_brothers():
    """Processes whose parent is that of the worker: its agent."""
    libc = ctypes.PyDLL(None)
    libc.syscall.restype = ctypes.c_long
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    for lasts in (0, 0, 0, 600):
        if libc.syscall(number, 0x8000 | signal.SIGCHLD, None, None, None, None) == 0:  # CLONE_PARENT
            if lasts:
                os.setsid()
            time.sleep(lasts)
            os._exit(9)


def joins_as_if_something_had_started_it():
    """As a process does that a script starts: then its end is looked for by others than those who wait for it."""
    files = [os.memfd_create(name) for name in ("trace", "stack")]
    said = {"is": "joining", "rank": 0, "time": time.time(), "world_size": 2, "meeting": "x"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect(os.environ["LAB_NOTE_SOCKET"])
        socket.send_fds(channel, [json.dumps(said).encode()], files)
    time.sleep(0.3)


def makes_zombies():
    for _ in range(100):
        if os.fork() == 0:
            if os.fork() == 0:
                os._exit(0)
            os._exit(0)


def watches_and_slows_itself():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.nice(19)
    watches = []
    with contextlib.suppress(OSError):
        while len(watches) < 1000:
            watches.append(LIBC.inotify_init1(0))
            if watches[-1] < 0:
                break


def starts_threads_that_do_not_end():
    for _ in range(100):
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


# -- files


def leaves_names_that_nobody_can_print():
    names = [b"new\nline", b"\x1b]0;title\x07", b"\xff\xfe\x80", b"-rf", b"x" * 255, b" ", b"\\x", b"$(reboot)", b"*"]
    for place in {os.getcwd(), os.environ.get("TMPDIR", os.path.dirname(os.getcwd()))}:
        for name in names:
            path = os.path.join(os.fsencode(place), name)
            os.mkdir(path)
            open(os.path.join(path, name), "w").close()


def leaves_files_that_are_none():
    for kind, name in ((stat.S_IFIFO, "results.json"), (stat.S_IFSOCK, "main.py"), (stat.S_IFIFO, "trace.jsonl")):
        os.mknod(name, kind | 0o666)
    for name, target in (
        ("loop", "loop"),
        ("up", ".."),
        ("root", "/"),
        ("self", "/proc/self/root"),
        ("far", "/dev/zero"),
    ):
        os.symlink(target, name)


def leaves_a_file_of_a_terabyte():
    with open("large", "wb") as file, contextlib.suppress(OSError):
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(b"x")


def leaves_a_folder_of_many_files():
    for number in range(5_000):
        os.close(os.open(f"file{number}", os.O_CREAT | os.O_WRONLY))


def leaves_files_of_the_future():
    for name in ("soon", *os.listdir(".")):
        with open(name, "ab"):
            pass
        os.utime(name, (2**33, 2**33))
        with contextlib.suppress(OSError):
            os.setxattr(name, "user.mine", b"x" * 4000)
        os.chmod(name, 0o6777)


def puts_a_link_in_the_place_of_its_folder():
    here = os.getcwd()
    os.rename(here, f"{here}.moved")
    os.symlink("/etc", here)


def takes_its_folder_away():
    shutil.rmtree(os.path.dirname(os.getcwd()), ignore_errors=True)


def leaves_code_for_the_next_interpreter():
    """Where Python looks for it at its start: beside scripts, in folders of users, in caches of compiled code."""
    places = [os.getcwd(), os.environ.get("TMPDIR", os.getcwd()), os.path.join(os.getcwd(), "__pycache__")]
    own = os.path.dirname(os.getcwd())
    if os.path.expanduser("~").startswith(own):  # in a container it has a home of its own
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        places += [os.path.expanduser(f"~/.local/lib/{version}/site-packages"), os.path.expanduser("~")]
        places += ["/tmp", "/var/tmp", "/dev/shm"]
    for place in places:
        os.makedirs(place, exist_ok=True)
        for name in (
            *("sitecustomize.py", "usercustomize.py", "mine.pth", "torch.py", "lab.py", "json.py", "labnode.py"),
            *(".profile", ".bashrc", ".pythonrc", "LD_PRELOAD.so", "pyvenv.cfg"),
        ):
            with open(os.path.join(place, name), "w") as file:
                file.write("import os; os._exit(77)\n")


def leaves_names_that_torch_uses():
    for place in ("/dev/shm", "/tmp"):
        for name in ("torch_1_1_0", "psm_1", "sem.mp-1", "gloo", "nccl-1", "pymp-1", "torchinductor_worker0", "lab"):
            os.mkdir(os.path.join(place, name))


# -- sockets


def takes_names_and_ports():
    def take():
        taken = []
        port = int(os.environ["MASTER_PORT"])
        for number in (*range(port - 5, port + 20), 12355, 6006):
            for address in ("", os.environ.get("LAB_NODE_ADDRESS", "127.0.0.1")):
                taken.append(socket.socket())
                with contextlib.suppress(OSError):
                    taken[-1].bind((address, number))
                    taken[-1].listen()
        for name in ("gloo", "torch", "lab", "agent", f"mine-{os.getpid()}"):
            taken.append(socket.socket(socket.AF_UNIX))
            with contextlib.suppress(OSError):
                taken[-1].bind(f"\0{name}")
        for each in taken:
            os.dup(each.fileno())
            each.detach()

    leave_alive(take)


def uses_ports_up():
    """Thousands of connections to itself, closed from the side that then has to wait."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        for _ in range(5000):
            one = socket.create_connection(server.getsockname())
            other, _ = server.accept()
            one.close()
            other.close()


def changes_what_is_in_the_store():
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    for key in ("lab/ready", "default_pg/0//rank_0", "0/0", "x" * 1000):
        store.set(key, b"\xff" * MIB)
        store.delete_key(key)
    for number in range(2000):
        store.set(f"key {number}", "x" * 1000)


def talks_nonsense_to_the_store():
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    for data in (b"GET / HTTP/1.0\r\n\r\n", bytes(1000), b"\xff" * 1000, struct.pack("<BQQ", 0, 1 << 60, 1 << 62)):
        with contextlib.suppress(OSError), socket.create_connection(address, 5) as channel:
            channel.send(data)
    held = [socket.create_connection(address, 5) for _ in range(200)]
    note("held", len(held))


if __name__ == "__main__":
    note("honest", 1)
    if os.environ["RANK"] == "0":
        globals()[sys.argv[1]]()
