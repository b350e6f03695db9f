"""Sends its agent what no note is: nonsense, huge, nested, with descriptors, as fast as it can."""

import array
import contextlib
import os
import socket

said = [b"", b"\0" * 60_000, b"[" * 60_000, b'{"is": "finish"}', b'{"is": "stop", "hard": true}', os.urandom(1000)]
said += [b'{"is": "note", "name": 5, "value": 1e999}', b'{"is": "raised", "error": "x", "time": "y"}', b"\xff\xfe{}"]
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
    channel.connect(os.environ["LAB_NOTE_SOCKET"])
    channel.setblocking(False)
    descriptors = array.array("i", [0, 1, 2] * 60)
    for _ in range(3000):
        for data in said:
            with contextlib.suppress(OSError):
                channel.send(data)
        with contextlib.suppress(OSError):
            channel.sendmsg([b"{}"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
