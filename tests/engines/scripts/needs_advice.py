"""Fails in the way that its argument names."""

import argparse
import sys
from pathlib import Path

import torch
import torch.distributed as dist

if len(sys.argv) == 1:
    parser = argparse.ArgumentParser()
    for option in ("--rank", "--world-size", "--data"):
        parser.add_argument(option, required=True)
    parser.parse_args()

if sys.argv[1] == "nccl":
    dist.init_process_group("nccl")
if sys.argv[1] == "one gpu":
    why = (
        "NCCL error in: NCCLUtils.cpp:93, invalid usage, NCCL version 2.28.9\nncclInvalidUsage: This usually reflects "
    )
    why += (
        "invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device 60"
    )
    raise dist.DistBackendError(why)
if sys.argv[1] == "no rank":
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:8991", rank=None, world_size=3)
dist.init_process_group("gloo")
if sys.argv[1] == "root":
    dist.broadcast(torch.ones(1), src=7)
if sys.argv[1] == "file":
    if dist.get_rank() == 0:
        Path("words.txt").write_text("one two")
    dist.barrier()
    Path("words.txt").read_text()
elif sys.argv[1] == "other file":
    dist.barrier()
    Path("none.txt").read_text()
elif sys.argv[1] == "gradient":
    mine = torch.ones(2, requires_grad=True) * 2
    outputs = [torch.zeros(2) for _ in range(dist.get_world_size())]
    dist.all_gather(outputs, mine)
    torch.stack(outputs).sum().backward()
elif sys.argv[1] == "check":
    total = torch.ones(2)
    dist.all_reduce(total)
    dist.barrier()
    assert total[0] == 2, f"the sum is {total[0]}"
elif sys.argv[1] == "peer" and dist.get_rank() == 1:
    dist.send(torch.ones(1), dst=7)
dist.barrier()
