"""Sets addresses that no node has, and makes the group twice."""

import os

import torch
import torch.distributed as dist

for port in ("8991", "8992"):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = f"10.255.0.{os.environ['RANK']}", port
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    dist.destroy_process_group()
    print(int(total))
