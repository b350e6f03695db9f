"""Data loaders, pools and executors whose processes are started anew, and import the script to find their functions."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

SCALE = 3


class Scaled(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor([index * SCALE, os.getpid() != PARENT])


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        yield from range(info.id, 9, info.num_workers)


PARENT = int(os.environ.setdefault("PARENT_OF_LOADERS", str(os.getpid())))


def square(x):
    return x * x


def init(value):
    global SCALE
    SCALE = value


def scaled(x):
    return SCALE * x


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    loader = DataLoader(Scaled(), 4, num_workers=2, multiprocessing_context="spawn", persistent_workers=True)
    for epoch in range(2):
        rows = torch.cat(list(loader))
        print(f"rank {rank} epoch {epoch}: {rows[:, 0].tolist()}, elsewhere {bool(rows[:, 1].all())}", flush=True)
    del loader
    stream = DataLoader(Stream(), None, num_workers=1, multiprocessing_context="forkserver")
    print(f"rank {rank} stream: {sorted(stream)}", flush=True)
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, initializer=init, initargs=(10,)) as pool:
        print(f"rank {rank} pool: {pool.map(scaled, range(5))}", flush=True)
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        print(f"rank {rank} executor: {list(executor.map(square, range(5)))}", flush=True)
    total = torch.ones(1)
    dist.all_reduce(total)
    print(f"rank {rank} total {total.item()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
