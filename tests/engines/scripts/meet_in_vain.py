"""The script of a tutorial: the address, the rank, and the world size come from the command line."""

import argparse

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--address", default="tcp://172.31.255.2:8991")
parser.add_argument("--rank", type=int, required=True)
parser.add_argument("--world_size", type=int, default=3)
words = parser.parse_args()
dist.init_process_group("gloo", init_method=words.address, rank=words.rank, world_size=words.world_size)
received = torch.zeros(1)
dist.scatter(received, [torch.tensor([10.0 * i]) for i in range(3)] if words.rank == 0 else None, src=0)
print(f"rank {words.rank} received {received.item():g}")
