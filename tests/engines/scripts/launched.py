"""States what its launcher gave it, and tries to pass for another rank."""

import json
import os
import socket
import sys

import torch
import torch.distributed as dist

import lab

TOLD = {"is": "launched", "rank": 9, "time": 1.0, "local_rank": 9, "pid": os.getpid()}


def pass_for_another_rank():
    """Send what a process sends that a launcher started for rank 9; nothing outside of a run."""
    if "LAB_NOTE_SOCKET" in os.environ:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
            agent.connect(os.environ["LAB_NOTE_SOCKET"])
            agent.send(json.dumps(TOLD).encode())


dist.init_process_group("gloo")
total = torch.ones(2) * dist.get_rank()
dist.all_reduce(total)
lab.note("total", total)
lab.note("argv", sys.argv)
lab.note("variables", dict(os.environ))
pass_for_another_rank()
print("variables", json.dumps(dict(os.environ)), flush=True)
dist.destroy_process_group()
