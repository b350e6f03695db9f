"""Tries what no script may do, and notes what it could do. Two ranks on one node; nothing here may succeed."""

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
import sys

import torch

import lab
from lab import note

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET, PTRACE_ATTACH = 0x20000, 0x10000000, 0x40000000, 16
NUMBERS = {  # of system calls that libc has no function for
    "x86_64": {
        "add_key": 248,
        "io_uring_setup": 425,
        "perf_event_open": 298,
        "bpf": 321,
        "userfaultfd": 323,
        "fsopen": 430,
        "pidfd_getfd": 438,
    },
    "aarch64": {
        "add_key": 217,
        "io_uring_setup": 425,
        "perf_event_open": 241,
        "bpf": 280,
        "userfaultfd": 282,
        "fsopen": 430,
        "pidfd_getfd": 438,
    },
}.get(os.uname().machine, {})
OWN_FILE = os.path.abspath("mine")
ATTEMPTS = []


def attempt(function):
    ATTEMPTS.append(function)
    return function


def system_call(name, *arguments):
    """Call it; an error is an exception."""
    function = getattr(LIBC, name, None)
    if name in NUMBERS:
        result = LIBC.syscall(ctypes.c_long(NUMBERS[name]), *arguments)
    elif function is not None:
        result = function(*arguments)
    else:
        raise OSError(f"there is no {name}")
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


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


def move(name, pid, address):
    """Copy eight bytes between this process and another one."""
    mine = ctypes.create_string_buffer(8)
    here = struct.pack("PN", ctypes.addressof(mine), 8)
    system_call(name, pid, here, 1, struct.pack("PN", address, 8), 1, 0)


def take_descriptor(pid):
    """Take a copy of what a process has open as its standard output."""
    os.close(system_call("pidfd_getfd", os.pidfd_open(pid), 1, 0))


def ask_the_kernel(kind, body):
    """Have the network of this node changed: a request over netlink, whose answer is an error or none."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as channel:
        channel.settimeout(5)
        channel.send(struct.pack("IHHII", 16 + len(body), kind, 5, 1, 0) + body)
        code = struct.unpack("i", channel.recv(4096)[16:20])[0]
    if code:
        raise OSError(-code, os.strerror(-code))


# -- the agent


@attempt
def speak_to_what_runs_this_machine():
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()


@attempt
def have_the_kernel_call_for_it():
    system_call("io_uring_setup", 4, ctypes.create_string_buffer(120))


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
    append(sys.modules["labnode.node.rank.note"].__file__)


@attempt
def writes_into_what_import_lab_means():
    append(lab.__file__)


@attempt
def puts_a_file_beside_the_code_of_the_agent():
    append(os.path.join(os.path.dirname(sys.modules["labnode.node.rank.note"].__file__), "planted.py"))


@attempt
def puts_a_file_where_only_the_agent_may():
    append(os.path.join(os.path.dirname(os.environ["LAB_NOTE_SOCKET"]), "results.json"))


@attempt
def takes_its_note_socket_away():
    os.unlink(os.environ["LAB_NOTE_SOCKET"])


@attempt
def reads_the_memory_of_the_agent_by_a_system_call():
    any_of(agents(), lambda pid: move("process_vm_readv", pid, id(os)))


@attempt
def writes_the_memory_of_the_agent_by_a_system_call():
    any_of(agents(), lambda pid: move("process_vm_writev", pid, id(os)))


@attempt
def reads_where_the_agent_has_its_memory():
    any_of(agents(), lambda pid: open(f"/proc/{pid}/maps", "rb").read())


@attempt
def takes_a_descriptor_of_the_agent():
    any_of(agents(), take_descriptor)


@attempt
def writes_where_the_agent_answers():
    any_of(agents(), lambda pid: append(f"/proc/{pid}/fd/1"))


@attempt
def looks_around_through_the_agent():
    any_of(agents(), lambda pid: os.listdir(f"/proc/{pid}/root"))
    any_of(agents(), lambda pid: os.listdir(f"/proc/{pid}/cwd"))


@attempt
def enters_the_namespaces_of_the_agent():
    any_of(agents(), lambda pid: system_call("setns", os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY), 0))


@attempt
def takes_the_files_of_the_agent_away_by_a_limit():
    any_of(agents(), lambda pid: resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0)))


@attempt
def keeps_the_agent_on_one_core():
    any_of(agents(), lambda pid: os.sched_setaffinity(pid, {0}))


@attempt
def lets_the_agent_run_only_when_nobody_else_does():
    any_of(agents(), lambda pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)))


@attempt
def signals_the_group_of_the_agent():
    groups = {os.getpgid(pid) for pid in agents()} - {0, 1}  # those would be all of its own processes
    any_of(groups, lambda group: os.killpg(group, signal.SIGTERM))


@attempt
def is_never_killed_when_memory_runs_out():
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1")


@attempt
def puts_something_in_the_place_of_its_run():
    run = os.path.dirname(os.getcwd())
    os.rename(run, f"{run}.mine")


@attempt
def gives_the_file_of_its_trace_another_owner():
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            if "trace" in os.readlink(f"/proc/self/fd/{entry}"):
                os.fchown(int(entry), os.getuid(), os.getgid())
                return
    raise OSError("there is no trace")


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


@attempt
def puts_code_where_every_interpreter_begins():
    any_of({os.path.dirname(os.__file__), *sys.path[1:]}, lambda at: append(os.path.join(at, "sitecustomize.py")))


@attempt
def moves_a_file_over_one_of_torch():
    append(OWN_FILE)
    os.rename(OWN_FILE, torch.__file__)


@attempt
def removes_a_file_of_torch():
    os.unlink(torch.__file__)


@attempt
def moves_torch_away():
    os.rename(os.path.dirname(torch.__file__), "/tmp/torch")


@attempt
def opens_torch_to_all():
    os.chmod(torch.__file__, 0o777)


@attempt
def takes_torch_over():
    os.chown(torch.__file__, os.getuid(), os.getgid())


@attempt
def makes_torch_look_newer():
    os.utime(torch.__file__, (4e9, 4e9))


@attempt
def marks_a_file_of_torch():
    os.setxattr(torch.__file__, "user.mine", b"1")


@attempt
def empties_the_interpreter():
    os.truncate(os.path.realpath(sys.executable), 0)


@attempt
def adds_to_the_search_of_libraries():
    any_of(("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d/mine.conf"), append)


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


@attempt
def gets_the_rights_of_a_program():
    with open("/proc/self/status") as file:
        if any(line.split() == ["NoNewPrivs:", "1"] for line in file):
            raise OSError("no program gives new rights")


@attempt
def has_a_capability():
    with open("/proc/self/status") as file:
        sets = [int(line.split()[1], 16) for line in file if line.startswith("Cap")]
    if not any(sets):
        raise OSError("none is left")


@attempt
def gives_a_file_to_root():
    append(OWN_FILE)
    os.chown(OWN_FILE, 0, -1)


@attempt
def gives_a_file_to_another_rank():
    append(OWN_FILE)
    os.chown(OWN_FILE, os.getuid() + 1, -1)


@attempt
def makes_a_program_of_the_group_of_root():
    append(OWN_FILE)
    os.chown(OWN_FILE, -1, 0)
    os.chmod(OWN_FILE, 0o2755)


@attempt
def mounts_in_a_new_way():
    system_call("fsopen", b"tmpfs", 0)


@attempt
def unmounts():
    system_call("umount2", b"/shared", 2)


@attempt
def makes_a_view_of_files_of_its_own():
    system_call("unshare", CLONE_NEWNS)


@attempt
def makes_a_network_of_its_own():
    system_call("unshare", CLONE_NEWNET)


@attempt
def changes_its_limits_of_memory():
    memory = "/sys/fs/cgroup"
    any_of(
        [f"{memory}/{name}" for name in ("memory/memory.limit_in_bytes", "pids/pids.max", "memory.max", "pids.max")],
        append,
    )


@attempt
def leaves_its_control_group():
    top = "/sys/fs/cgroup"
    groups = [top, *(entry.path for entry in os.scandir(top) if entry.is_dir())]
    any_of(groups, lambda group: append(f"{group}/cgroup.procs"))


@attempt
def becomes_a_real_time_process():
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


@attempt
def raises_its_limits():
    resource.setrlimit(resource.RLIMIT_RTPRIO, (99, 99))


@attempt
def keeps_something_in_a_keyring():
    system_call("add_key", b"user", b"mine", b"kept", 4, -3)


@attempt
def watches_the_machine():
    system_call("perf_event_open", bytes(128), -1, 0, -1, 0)


@attempt
def loads_a_program_into_the_kernel():
    system_call("bpf", 5, bytes(128), 128)


@attempt
def loads_a_module_into_the_kernel():
    system_call("init_module", b"", 0, b"")


@attempt
def holds_the_kernel_up():
    system_call("userfaultfd", 0)


@attempt
def reads_the_log_of_the_kernel():
    system_call("klogctl", 3, ctypes.create_string_buffer(100), 100)


@attempt
def opens_a_file_by_its_number():
    system_call("open_by_handle_at", -100, struct.pack("Ii8x", 8, 1), 0)


@attempt
def opens_the_disks_and_the_memory_of_the_machine():
    devices = ("mem", "kmem", "port", "kmsg", "sda", "vda", "nvme0n1", "mapper/control", "fuse", "loop-control", "kvm")
    any_of([f"/dev/{name}" for name in devices], append)


@attempt
def restarts_the_machine():
    system_call("reboot", 0)


@attempt
def swaps_to_a_file():
    system_call("swapon", OWN_FILE.encode(), 0)


@attempt
def counts_what_others_do():
    system_call("acct", OWN_FILE.encode())


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


@attempt
def removes_the_interface():
    ask_the_kernel(17, struct.pack("BxHiII", 0, 0, 2, 0, 0))


@attempt
def changes_where_packets_go():
    ask_the_kernel(25, struct.pack("8BI", socket.AF_INET, 0, 0, 0, 254, 3, 0, 1, 0))


@attempt
def speaks_as_another_address():
    with socket.socket() as any_socket:
        any_socket.setsockopt(socket.SOL_IP, 19, 1)  # IP_TRANSPARENT


@attempt
def gives_itself_an_address():
    with socket.socket() as any_socket:
        address = struct.pack("16sHH4s8x", b"lo", socket.AF_INET, 0, socket.inet_aton("10.1.2.3"))
        fcntl.ioctl(any_socket, 0x8916, address)


@attempt
def takes_the_place_of_the_store():
    with socket.socket() as place:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            place.setsockopt(socket.SOL_SOCKET, option, 1)
        place.bind((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        place.listen()


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


@attempt
def reads_the_memory_of_another_rank_by_a_system_call():
    any_of(others(), lambda pid: move("process_vm_readv", pid, id(os)))


@attempt
def writes_the_memory_of_another_rank_by_a_system_call():
    any_of(others(), lambda pid: move("process_vm_writev", pid, id(os)))


@attempt
def takes_a_descriptor_of_another_rank():
    any_of(others(), take_descriptor)


@attempt
def prints_as_another_rank():
    any_of(others(), lambda pid: append(f"/proc/{pid}/fd/1"))


@attempt
def reads_the_environment_of_another_rank():
    any_of(others(), lambda pid: open(f"/proc/{pid}/environ", "rb").read())


@attempt
def takes_the_files_of_another_rank_away_by_a_limit():
    any_of(others(), lambda pid: resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0)))


@attempt
def slows_another_rank_down():
    any_of(others(), lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19))


@attempt
def keeps_another_rank_on_one_core():
    any_of(others(), lambda pid: os.sched_setaffinity(pid, {0}))


@attempt
def has_another_rank_killed_first_when_memory_runs_out():
    any_of(others(), lambda pid: append(f"/proc/{pid}/oom_score_adj"))


def main():
    done, refused = [], {}
    for one in ATTEMPTS:
        try:
            one()
            done.append(one.__name__)
        except (OSError, ValueError) as error:
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
