"""States what its launcher gave it, and tries to have a worker started."""

import json
import os
import socket
import sys

import torch
import torch.distributed as dist

import lab

TAKEN = b"1\0launched.py\0" + b"0\0" + b"RANK=0\0LOCAL_RANK=0"


def ask_for_a_worker():
    """What comes back; None where there is nobody to ask."""
    note_socket = os.environ.get("LAB_NOTE_SOCKET")
    if note_socket is None:
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
        try:
            agent.connect(os.path.join(os.path.dirname(note_socket), "join"))
            agent.sendall(len(TAKEN).to_bytes(4, "big") + TAKEN)
            return agent.recv(1000).decode()
        except OSError as error:
            return f"refused {type(error).__name__}"


dist.init_process_group("gloo")
total = torch.ones(2) * dist.get_rank()
dist.all_reduce(total)
lab.note("total", total)
lab.note("argv", sys.argv)
lab.note("variables", dict(os.environ))
lab.note("asked", ask_for_a_worker())
print("variables", json.dumps(dict(os.environ)), flush=True)
dist.destroy_process_group()
