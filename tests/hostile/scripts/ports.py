"""Leaves connections that the kernel keeps after every process of the run has ended.

Arguments: how many, whose, and a port. `own`: of this script, to a port of the kernel's choice. `store`: to the
rendezvous store. `chosen`: from the port that is named. `six`: as `own`, by sockets of IPv6. Each rank leaves as many.
"""

import contextlib
import os
import socket
import sys
import time

import torch.distributed as dist

dist.init_process_group("gloo")
count, whose = int(sys.argv[1]), sys.argv[2]
source = ("127.0.0.1", int(sys.argv[3])) if whose == "chosen" else None
mapped = "::ffff:" if whose == "six" else ""  # nodes have no address of IPv6
family = socket.AF_INET6 if mapped else socket.AF_INET
server = socket.socket(family)
server.bind((f"{mapped}127.0.0.1", 0))
server.listen(128)
address = server.getsockname()[:2]
if whose == "store":
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
left, end = 0, time.monotonic() + 45  # a busy machine takes long
with contextlib.suppress(OSError):  # until every port is taken
    while left < count and time.monotonic() < end:
        client = socket.socket(family)
        if source:
            client.bind(source)
        client.connect(address)
        accepted = None if whose == "store" else server.accept()[0]
        client.close()  # who closes first keeps the port
        if accepted is not None:
            accepted.close()
        left += 1
print("left", left, flush=True)
dist.barrier()
dist.destroy_process_group()
