"""Listens on every port that it can have, the one of the rendezvous too, and leaves a process that holds them."""

import contextlib
import os
import socket
import time

held = []
for port in (28411, 29500, *range(20_000, 20_900)):
    with contextlib.suppress(OSError):
        held.append(socket.create_server(("0.0.0.0", port), reuse_port=True))
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
