"""Training whose batches come from a DataLoader with a process of its own.

Nothing in here is wrong. What goes wrong comes from outside: the `faults:` of the scenarios that run it.
"""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
from training import Training

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

ROWS, BATCHES = 8, 12


class Rows(Dataset):
    def __len__(self):
        return ROWS * BATCHES

    def __getitem__(self, index):
        return torch.full((32,), index / self.__len__())


def main():
    dist.init_process_group("gloo")
    training = Training()
    for step, batch in enumerate(DataLoader(Rows(), batch_size=ROWS, num_workers=1)):
        training.step(batch, batch.sum(1, keepdim=True))
        note("step", step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
