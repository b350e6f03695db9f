"""Ranks that meet in a file, and again in a store of their own making. Argument: a folder that all of them see."""

import os
import sys

import torch
import torch.distributed as dist


def meet(**how):
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=world_size, **how)
    total = torch.tensor([2.0**rank])
    dist.all_reduce(total)
    dist.destroy_process_group()
    return total.item()


if __name__ == "__main__":
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    print(f"rank {rank} by file:// {meet(init_method=f'file://{folder}/first')}", flush=True)
    store = dist.FileStore(f"{folder}/second", world_size)
    print(f"rank {rank} by FileStore {meet(store=store)}", flush=True)
    prefixed = dist.PrefixStore("again", dist.FileStore(f"{folder}/third", world_size))
    print(f"rank {rank} by PrefixStore {meet(store=prefixed)}", flush=True)
    print(f"rank {rank} by env:// {meet(init_method='env://')}", flush=True)
