# kind: failed
# rank: 0
# says: in use
"""The port of the rendezvous is taken by something that rank 0 started itself."""

import os
import socket

import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"]
os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
if rank == 0:
    taken = socket.create_server((address, 29777))
dist.init_process_group("gloo", init_method=f"tcp://{address}:29777", rank=rank, world_size=size)  # cause
dist.all_reduce(torch.ones(1))
