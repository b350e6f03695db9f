"""Rank 0 wants to host a store at a port that something else listens at already."""

import os
import socket

import torch.distributed as dist

rank = int(os.environ["RANK"])
world_size = int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"]

if rank == 0:
    other = socket.create_server(("0.0.0.0", 29511))  # another training run, a leftover process ...
    store = dist.TCPStore(address, 29511, world_size, is_master=True)
else:
    dist.init_process_group("gloo")
