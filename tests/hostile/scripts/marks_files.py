"""Try in every way to leave a file with a setuid or setgid bit in a folder of the machine, named by the argument."""

import contextlib
import ctypes
import itertools
import os
import stat
import sys

from lab import note

FOLDER = sys.argv[1]
MODES = (0o4755, 0o2755, 0o6777, 0o104755)
LIBC = ctypes.CDLL(None, use_errno=True)
os.umask(0)


def path(name):
    return os.path.join(FOLDER, f"{os.getpid()}-{name}")


def made(name):
    with open(path(name), "w") as file:
        file.write("#!/bin/sh\nid\n")
    return path(name)


def by_chmod(mode):
    os.chmod(made("chmod"), mode)


def by_descriptor(mode):
    with open(made("fchmod")) as file:
        os.fchmod(file.fileno(), mode)


def by_folder(mode):
    folder = os.open(FOLDER, os.O_RDONLY)
    os.chmod(os.path.basename(made("fchmodat")), mode, dir_fd=folder)


def by_opening(mode):
    os.close(os.open(path("open"), os.O_CREAT | os.O_WRONLY, mode))


def by_temporary_file(mode):
    fd = os.open(FOLDER, os.O_TMPFILE | os.O_RDWR, mode)
    os.link(f"/proc/self/fd/{fd}", path("tmpfile"))


def by_mknod(mode):
    os.mknod(path("mknod"), mode | stat.S_IFREG)


def by_pipe(mode):
    os.mkfifo(path("fifo"), mode)


def by_openat2(mode):
    how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, mode & 0o7777, 0)
    LIBC.syscall(437, -100, path("openat2").encode(), ctypes.byref(how), ctypes.sizeof(how))


def by_fchmodat2(mode):
    LIBC.syscall(452, -100, made("fchmodat2").encode(), mode, 0)


def by_another_program(mode):
    os.system(f"chmod {mode & 0o7777:o} {made('program')}; install -m {mode & 0o7777:o} /bin/true {path('install')}")


def by_folders_that_pass_it_on(mode):
    os.mkdir(path("folder"), mode)
    os.chmod(path("folder"), mode)


WAYS = [one for name, one in globals().items() if name.startswith("by_")]
for way, mode in itertools.product(WAYS, MODES):
    with contextlib.suppress(OSError):
        way(mode)
os.chmod(made("plain"), 0o1755)
found = [one for one in os.scandir(FOLDER) if stat.S_IMODE(one.stat(follow_symlinks=False).st_mode) & 0o6000]
note("marked", sorted(one.name.partition("-")[2] for one in found))
