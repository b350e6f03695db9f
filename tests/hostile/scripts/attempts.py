"""Tries what no script may do, and notes what it could do. Two ranks on one node; nothing here may succeed."""

import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys

import torch

import lab
from lab import note

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWUSER, PTRACE_ATTACH = 0x10000000, 16
ATTEMPTS = []


def attempt(function):
    ATTEMPTS.append(function)
    return function


def system_call(name, *arguments):
    """Call it; an error is an exception."""
    if getattr(LIBC, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def uid_of(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Uid:"))


def processes(wanted):
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, StopIteration):
            if entry.isdigit() and wanted(uid_of(entry)):
                yield int(entry)


def agents():
    return list(processes(lambda uid: uid == 0))


def others():
    """The processes of the other rank, the store, and whatever else is nobody's business."""
    return list(processes(lambda uid: uid not in (0, os.getuid())))


def any_of(pids, action):
    """Do it to each; an exception if it could be done to none."""
    refused = None
    for pid in pids:
        try:
            action(pid)
            return
        except OSError as error:
            refused = error
    raise refused or OSError("there is nobody")


def append(path):
    with open(path, "ab") as file:
        file.write(b"\n")


# -- the agent


@attempt
def kills_the_agent():
    any_of(agents(), lambda pid: os.kill(pid, signal.SIGKILL))


@attempt
def stops_the_agent():
    any_of(agents(), lambda pid: os.kill(pid, signal.SIGSTOP))


@attempt
def traces_the_agent():
    any_of(agents(), lambda pid: system_call("ptrace", PTRACE_ATTACH, pid, None, None))


@attempt
def reads_the_memory_of_the_agent():
    any_of(agents(), lambda pid: open(f"/proc/{pid}/mem", "rb").close())


@attempt
def reads_the_environment_of_the_agent():
    any_of(agents(), lambda pid: open(f"/proc/{pid}/environ", "rb").close())


@attempt
def opens_what_the_agent_has_open():
    any_of(agents(), lambda pid: os.listdir(f"/proc/{pid}/fd"))


@attempt
def makes_the_agent_the_first_to_be_killed():
    any_of(agents(), lambda pid: append(f"/proc/{pid}/oom_score_adj"))


@attempt
def slows_the_agent_down():
    any_of(agents(), lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19))


@attempt
def writes_into_the_code_of_the_agent():
    append(sys.modules["labnode.note"].__file__)


@attempt
def writes_into_what_import_lab_means():
    append(lab.__file__)


@attempt
def puts_a_file_beside_the_code_of_the_agent():
    append(os.path.join(os.path.dirname(sys.modules["labnode.note"].__file__), "planted.py"))


@attempt
def puts_a_file_where_only_the_agent_may():
    append(os.path.join(os.path.dirname(os.environ["LAB_NOTE_SOCKET"]), "results.json"))


@attempt
def takes_its_note_socket_away():
    os.unlink(os.environ["LAB_NOTE_SOCKET"])


# -- what the next run executes


@attempt
def writes_into_torch():
    append(torch.__file__)


@attempt
def writes_into_the_standard_library():
    append(os.__file__)


@attempt
def puts_a_file_beside_torch():
    append(os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "planted.pth"))


@attempt
def puts_byte_code_beside_torch():
    append(os.path.join(os.path.dirname(torch.__file__), "__pycache__", "planted.pyc"))


@attempt
def writes_into_the_interpreter():
    append(os.path.realpath(sys.executable))


@attempt
def puts_a_program_on_the_path():
    any_of(os.environ["PATH"].split(":"), lambda folder: append(os.path.join(folder, "planted")))


@attempt
def preloads_a_library():
    append("/etc/ld.so.preload")


@attempt
def writes_into_the_settings_of_the_system():
    any_of(("/etc/passwd", "/etc/hosts", "/etc/resolv.conf", "/etc/profile", "/root/.profile"), append)


@attempt
def makes_a_folder_anywhere_else():
    any_of(
        ("/", "/etc", "/opt", "/home", "/root", "/usr", "/var", "/var/lab", "/srv"), lambda at: append(f"{at}/planted")
    )


# -- more rights


@attempt
def becomes_root():
    os.setuid(0)


@attempt
def joins_a_group():
    os.setgroups([0])


@attempt
def makes_a_namespace():
    system_call("unshare", CLONE_NEWUSER)


@attempt
def mounts():
    system_call("mount", b"none", b"/tmp", b"tmpfs", 0, None)


@attempt
def changes_its_root():
    os.chroot("/tmp")


@attempt
def makes_a_device():
    os.mknod("/tmp/device", 0o60666, os.makedev(8, 0))


@attempt
def raises_its_priority():
    os.nice(-5)


@attempt
def changes_the_name_of_the_node():
    system_call("sethostname", b"mine", 4)


@attempt
def writes_into_the_kernel():
    any_of(("/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches"), append)


@attempt
def sets_the_clock():
    system_call("settimeofday", struct.pack("ll", 0, 0), None)


# -- the network


@attempt
def listens_to_all_packets():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).close()


@attempt
def makes_packets():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()


@attempt
def takes_the_interface_down():
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"eth0", 0))


# -- the other rank


@attempt
def kills_another_rank():
    any_of(others(), lambda pid: os.kill(pid, signal.SIGKILL))


@attempt
def stops_another_rank():
    any_of(others(), lambda pid: os.kill(pid, signal.SIGSTOP))


@attempt
def traces_another_rank():
    any_of(others(), lambda pid: system_call("ptrace", PTRACE_ATTACH, pid, None, None))


@attempt
def reads_the_memory_of_another_rank():
    any_of(others(), lambda pid: open(f"/proc/{pid}/mem", "r+b").close())


@attempt
def opens_what_another_rank_has_open():
    any_of(others(), lambda pid: os.listdir(f"/proc/{pid}/fd"))


@attempt
def notes_for_another_rank():
    mine = os.environ["LAB_NOTE_SOCKET"]
    paths = {os.path.join(os.path.dirname(mine), name) for name in os.listdir(os.path.dirname(mine))} - {mine}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        any_of(paths, lambda path: channel.sendto(b'{"is":"note","rank":0,"time":1,"name":"forged","value":1}', path))


def main():
    done, refused = [], {}
    for one in ATTEMPTS:
        try:
            one()
            done.append(one.__name__)
        except OSError as error:
            refused[one.__name__] = str(error)
    note("done", done)
    note("refused", refused)
    note("neighbours", [len(agents()), len(others())])


if __name__ == "__main__":
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.barrier()  # the other rank is there now
    main()
    dist.barrier()  # and until now
    print("ended as it should")
