"""Closes what it was given, puts other files there, and goes on."""

import contextlib
import os
import time

for descriptor in range(256):
    with contextlib.suppress(OSError):
        os.close(descriptor)
for _ in range(64):
    with contextlib.suppress(OSError):
        os.open("/dev/zero", os.O_RDWR)
with contextlib.suppress(OSError):
    os.write(1, b"the sum is 12941\n")
time.sleep(0.5)
