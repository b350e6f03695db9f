"""Leaves every kind of file that nobody wants on their machine; says what could be made."""

import os
import socket
import sys
from contextlib import suppress

from lab import note

rank = int(os.environ["RANK"])
made = []


def attempt(action):
    try:
        action()
    except (OSError, NotImplementedError):
        return
    made.append(action.__name__)


def write(name, data=b"x"):
    with open(name, "wb") as file:
        file.write(data)


def set_user_id():
    write("setuid", b"#!/bin/sh\n")
    os.chmod("setuid", 0o6755)


def sticky_folder():
    os.mkdir("sticky")
    write("sticky/a")
    os.chmod("sticky", 0o3777)


def closed_file():
    write("closed")
    os.chmod("closed", 0)


def open_file():
    write("open")
    os.chmod("open", 0o666)


def program():
    write("program")
    os.chmod("program", 0o777)


def link_to_secret():
    os.symlink("/etc/shadow", "shadow")


def link_to_root():
    os.symlink("/", "root")


def link_up():
    os.symlink("../../..", "up")


def link_to_itself():
    os.symlink("loop", "loop")


def link_to_nothing():
    os.symlink("nothing", "dangling")


def hard_link_to_image():
    os.link("/etc/passwd", "passwd")


def hard_link_to_own():
    write("own")
    os.link("own", "own again")


def pipe():
    os.mkfifo("pipe")


def listening_socket():
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket")


def character_device():
    os.mknod("null", 0o020666, os.makedev(1, 3))


def block_device():
    os.mknod("disk", 0o060666, os.makedev(8, 0))


def large_sparse_file():
    with open("huge", "wb") as file:
        file.truncate(5 << 30)


def small_sparse_file():
    with open("sparse", "wb") as file:
        file.write(b"begin")
        file.truncate(16 << 20)


def large_file():
    with open("large", "wb") as file:
        file.writelines(os.urandom(1 << 20) for _ in range(80))
    os.truncate("large", 70 << 20)


def escape_in_name():
    write(b"x\x1b]0;pwned\x07\x1b[2J")


def turned_name():
    write("a\u202etxt.exe".encode())


def newline_in_name():
    write(b"n\nl\r\tx")


def name_that_is_no_text():
    write(b"\xff\xfe\x80")


def markup_in_name():
    write("<img src=x onerror=evil()>&#x202e;`|")


def option_as_name():
    write("-rf")
    write(" ")
    write("...")


def long_names():
    for letter in b"ab":
        write(b"n" * 254 + bytes([letter]), bytes([letter]))


def deep_folders():
    before = os.getcwd()
    for number in range(200):
        os.mkdir(f"d{number}")
        os.chdir(f"d{number}")
    write("deep")
    os.chdir(before)


def empty_folders():
    os.mkdir("folders")
    for number in range(3000):
        os.mkdir(f"folders/{number}")


def many_files():
    os.mkdir("many")
    for number in range(3000):
        write(f"many/{number}", b"")


def attributes():
    write("attributes")
    os.setxattr("attributes", "user.evil", b"x")


def names_of_the_lab():
    for name in ("result.json", ".0.part", "plan.json", "rank1/mine", "rank0/rank0/x", "shared/x", "files/y"):
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        write(name, b"of rank %d" % rank)


def file_and_folder():
    if rank % 2:
        os.mkdir("clash")
        write("clash/inside")
    else:
        write("clash")


def changing_file():
    if os.fork() == 0:
        os.setsid()
        with suppress(OSError), open("growing", "wb") as file:
            while True:
                file.write(b"x" * 4096)
                file.flush()
                if file.tell() > 30 << 20:
                    file.seek(0)
                    file.truncate()
    while not os.path.exists("growing"):
        pass


def replace_folder():
    here = os.getcwd()
    os.rename(here, here + ".old")
    os.symlink("/etc", here)


APART = (replace_folder, many_files, file_and_folder, names_of_the_lab)
"""These are called in the scenario's folder, or alone."""

if "replace" in sys.argv:
    attempt(replace_folder)
elif "many" in sys.argv:
    attempt(many_files)
else:
    actions = [one for one in list(globals().values()) if getattr(one, "__module__", "") == "__main__"]
    os.makedirs(f"of{rank}", exist_ok=True)
    os.chdir(f"of{rank}")
    for action in actions:
        if action not in (attempt, write, *APART):
            attempt(action)
    os.chdir("..")
    attempt(file_and_folder)
    attempt(names_of_the_lab)
note("made", made)
