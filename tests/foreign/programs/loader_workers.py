"""Data loaders with processes of their own that stay from epoch to epoch."""

import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torch.utils.data.distributed import DistributedSampler


class Squares(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        return index, index * index, get_worker_info().id


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    sampler = DistributedSampler(Squares(), shuffle=True, seed=3)
    loader = DataLoader(Squares(), 4, sampler=sampler, num_workers=2, persistent_workers=True, prefetch_factor=2)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        indices, total, workers = [], torch.zeros((), dtype=torch.long), set()
        for index, square, worker in loader:
            indices += index.tolist()
            total += square.sum()
            workers.update(worker.tolist())
        dist.all_reduce(total)
        print(f"rank {rank} epoch {epoch} saw {sorted(indices)} from workers {sorted(workers)}", flush=True)
        print(f"rank {rank} epoch {epoch} total {total.item()}", flush=True)
    dist.destroy_process_group()
    print(f"rank {rank} ends with {'RANK' in os.environ}", flush=True)


if __name__ == "__main__":
    main()
